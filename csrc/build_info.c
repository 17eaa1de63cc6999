#include "build_info.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

const char *corenet_compiler(void) {
#if defined(__clang__) /* first: clang calls itself __GNUC__ too */
    return "clang " TEXT(__clang_major__) "." TEXT(__clang_minor__);
#elif defined(__GNUC__)
    return "gcc " TEXT(__GNUC__) "." TEXT(__GNUC_MINOR__);
#else
    return "an unknown compiler";
#endif
}
