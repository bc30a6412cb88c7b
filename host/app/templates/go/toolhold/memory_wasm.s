#include "textflag.h"

// func growMemory(pages int32) int32
//
// The instruction itself. Go has no function for it that packages may use, and memory for the host
// must come from outside Go's heap: see cabiRealloc.
TEXT ·growMemory(SB), NOSPLIT, $0-12
	Get SP
	I32Load pages+0(FP)
	GrowMemory
	I32Store ret+8(FP)
	RET
