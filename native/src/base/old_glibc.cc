// Keeps a library that is built with a newer glibc loadable with glibc 2.35. What the static libstdc++, or a
// newer header, would take from the newer libc is defined here by what glibc has always had, and stays inside
// the library. check_exports.py holds the built library to it. The functions are declared by their symbols,
// so that no declaration of a header redirects or contradicts them.
#include <cstdint>

#if defined(__GLIBC__)
#include <sys/random.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "base/error.h"

namespace vllm::old_glibc {

// 2.36; std::random_device draws from it.
uint32_t arc4random() __asm__("arc4random");
uint32_t arc4random() {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
    if (errno != EINTR) fail_runtime("the system gives no random numbers: %s", std::strerror(errno));
  }
  return value;
}

#if __GLIBC_PREREQ(2, 38)
// 2.38; the forms of C23, which also read binary numbers.
long strtol(const char* text, char** end, int base) __asm__("strtol");
unsigned long strtoul(const char* text, char** end, int base) __asm__("strtoul");
long long strtoll(const char* text, char** end, int base) __asm__("strtoll");
unsigned long long strtoull(const char* text, char** end, int base) __asm__("strtoull");
int vsscanf(const char* text, const char* format, va_list values) __asm__("__isoc99_vsscanf");

long c23_strtol(const char* text, char** end, int base) __asm__("__isoc23_strtol");
long c23_strtol(const char* text, char** end, int base) { return strtol(text, end, base); }

unsigned long c23_strtoul(const char* text, char** end, int base) __asm__("__isoc23_strtoul");
unsigned long c23_strtoul(const char* text, char** end, int base) { return strtoul(text, end, base); }

long long c23_strtoll(const char* text, char** end, int base) __asm__("__isoc23_strtoll");
long long c23_strtoll(const char* text, char** end, int base) { return strtoll(text, end, base); }

unsigned long long c23_strtoull(const char* text, char** end, int base) __asm__("__isoc23_strtoull");
unsigned long long c23_strtoull(const char* text, char** end, int base) { return strtoull(text, end, base); }

int c23_sscanf(const char* text, const char* format, ...) __asm__("__isoc23_sscanf");
int c23_sscanf(const char* text, const char* format, ...) {
  va_list values;
  va_start(values, format);
  const int read = vsscanf(text, format, values);
  va_end(values);
  return read;
}

// 2.38; the same function without the error handling of System V.
#if defined(__x86_64__)
__asm__(".symver vllm_first_fmod, fmod@GLIBC_2.2.5");
#elif defined(__aarch64__)
__asm__(".symver vllm_first_fmod, fmod@GLIBC_2.17");
#endif
#if defined(__x86_64__) || defined(__aarch64__)
double first_fmod(double a, double b) __asm__("vllm_first_fmod");
double fmod(double a, double b) __asm__("fmod");
double fmod(double a, double b) { return first_fmod(a, b); }
#endif
#endif

}  // namespace vllm::old_glibc
#endif
