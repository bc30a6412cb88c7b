// Unit conversion: every unit is a factor and an offset to the base unit of its kind.
#include <math.h>
#include <stdio.h>

#include "units.h"

typedef exports_example_units_convert_quantity_t quantity;
typedef exports_example_units_convert_unit_t unit;
typedef exports_example_units_convert_problem_t problem;

// What the generated code wants from an object file that is not made here.
void __component_type_object_force_link_units(void) {}

typedef enum { LENGTH, MASS, TEMPERATURE } kind;

static const struct {
  const char *symbol;
  kind kind;
  double factor, offset;  // base = value * factor + offset: metre, gram, kelvin
} table[] = {
    {"m", LENGTH, 1, 0},       {"km", LENGTH, 1000, 0}, {"in", LENGTH, 0.0254, 0},        {"mi", LENGTH, 1609.344, 0},
    {"g", MASS, 1, 0},         {"kg", MASS, 1000, 0},   {"lb", MASS, 453.59237, 0},       {"°C", TEMPERATURE, 1, 273.15},
    {"°F", TEMPERATURE, 5.0 / 9, 459.67 * 5 / 9},       {"K", TEMPERATURE, 1, 0},
};

static bool incompatible(unit left, unit right, problem *error) {
  *error = (problem){.tag = EXPORTS_EXAMPLE_UNITS_CONVERT_PROBLEM_INCOMPATIBLE, .val.incompatible = {left, right}};
  return false;
}

bool exports_example_units_convert_to(quantity *from, unit target, quantity *result, problem *error) {
  if (table[from->unit].kind != table[target].kind) return incompatible(from->unit, target, error);
  double base = from->value * table[from->unit].factor + table[from->unit].offset;
  if (table[target].kind == TEMPERATURE && base < 0) {
    error->tag = EXPORTS_EXAMPLE_UNITS_CONVERT_PROBLEM_IMPOSSIBLE;
    return false;
  }
  *result = (quantity){(base - table[target].offset) / table[target].factor, target};
  return true;
}

bool exports_example_units_convert_sum(exports_example_units_convert_list_quantity_t *list,
                                       exports_example_units_convert_option_quantity_t *result, problem *error) {
  result->is_some = list->len > 0;
  result->val = (quantity){0, 0};
  for (size_t index = 0; index < list->len; index++) {
    quantity converted;
    if (index == 0) result->val.unit = list->ptr[0].unit;
    // Two temperatures have no sum that means anything.
    if (table[list->ptr[index].unit].kind == TEMPERATURE) return incompatible(list->ptr[index].unit, result->val.unit, error);
    if (!exports_example_units_convert_to(&list->ptr[index], result->val.unit, &converted, error)) return false;
    result->val.value += converted.value;
  }
  return true;
}

void exports_example_units_convert_show(quantity *shown, uint8_t decimals, units_string_t *text) {
  char line[512];
  snprintf(line, sizeof line, "%.*f %s", decimals > 17 ? 17 : decimals, shown->value, table[shown->unit].symbol);
  units_string_dup(text, line);
}
