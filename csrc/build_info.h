/* How this library was made, for `corenet info`. */
#ifndef CORENET_BUILD_INFO_H
#define CORENET_BUILD_INFO_H

/* The compiler and its version, such as "gcc 12.2". */
const char *corenet_compiler(void);

#endif
