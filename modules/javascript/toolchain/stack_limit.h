/* Included before every file of QuickJS, which has no recursion limit where __wasi__ is defined: its
   embedders did not know the size of their stack. We do (.cargo/config.toml), and want a RangeError
   in place of a trap. The one header of the C library that insists on the macro is read before. */
#include <wasi/api.h>
#undef __wasi__
