/* What a shared library of MarkBase shows: it is built with hidden visibility, and MB_EXPORT marks
 * the public API. C and C++. */
#pragma once

#define MB_EXPORT __attribute__((visibility("default")))
/* For what lies inside an exported class and is nobody's business. */
#define MB_LOCAL __attribute__((visibility("hidden")))
