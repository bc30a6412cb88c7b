// The tools of this module, one file each.
#ifndef TOOLS_H
#define TOOLS_H

#include "toolhold.h"

bool query(const json *arguments, toolhold_result *result);
bool schema(const json *arguments, toolhold_result *result);

#endif
