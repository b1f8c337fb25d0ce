/* Whether this CPU has what the code of a library wants. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "threads.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#if defined(__x86_64__)
enum { EAX, EBX, ECX, EDX };
enum { OS_VECTORS = 0x6, OS_AVX512 = 0xe6, OS_TILES = 0x60000, OS_APX = 0x80000 }; /* registers that the system keeps: XCR0 */

static const struct {
  const char *name;
  uint32_t leaf, subleaf, part, bit, kept;
} cpu_features[] = {
    {"sse3", 1, 0, ECX, 0, 0},
    {"ssse3", 1, 0, ECX, 9, 0},
    {"sse4.1", 1, 0, ECX, 19, 0},
    {"sse4.2", 1, 0, ECX, 20, 0},
    {"sse4a", 0x80000001, 0, ECX, 6, 0},
    {"movbe", 1, 0, ECX, 22, 0},
    {"popcnt", 1, 0, ECX, 23, 0},
    {"lzcnt", 0x80000001, 0, ECX, 5, 0},
    {"tbm", 0x80000001, 0, ECX, 21, 0},
    {"xop", 0x80000001, 0, ECX, 11, OS_VECTORS},
    {"fma4", 0x80000001, 0, ECX, 16, OS_VECTORS},
    {"fma", 1, 0, ECX, 12, OS_VECTORS},
    {"avx", 1, 0, ECX, 28, OS_VECTORS},
    {"f16c", 1, 0, ECX, 29, OS_VECTORS},
    {"bmi", 7, 0, EBX, 3, 0},
    {"bmi2", 7, 0, EBX, 8, 0},
    {"avx2", 7, 0, EBX, 5, OS_VECTORS},
    {"avx512f", 7, 0, EBX, 16, OS_AVX512},
    {"avx512dq", 7, 0, EBX, 17, OS_AVX512},
    {"avx512ifma", 7, 0, EBX, 21, OS_AVX512},
    {"avx512cd", 7, 0, EBX, 28, OS_AVX512},
    {"avx512bw", 7, 0, EBX, 30, OS_AVX512},
    {"avx512vl", 7, 0, EBX, 31, OS_AVX512},
    {"avx512vbmi", 7, 0, ECX, 1, OS_AVX512},
    {"avx512vbmi2", 7, 0, ECX, 6, OS_AVX512},
    {"gfni", 7, 0, ECX, 8, 0},
    {"avx512vnni", 7, 0, ECX, 11, OS_AVX512},
    {"avx512bitalg", 7, 0, ECX, 12, OS_AVX512},
    {"avx512vpopcntdq", 7, 0, ECX, 14, OS_AVX512},
    {"avx512vp2intersect", 7, 0, EDX, 8, OS_AVX512},
    {"avx512fp16", 7, 0, EDX, 23, OS_AVX512},
    {"amx-bf16", 7, 0, EDX, 22, OS_TILES},
    {"amx-tile", 7, 0, EDX, 24, OS_TILES},
    {"amx-int8", 7, 0, EDX, 25, OS_TILES},
    {"avxvnni", 7, 1, EAX, 4, OS_VECTORS},
    {"avx512bf16", 7, 1, EAX, 5, OS_AVX512},
    {"avxifma", 7, 1, EAX, 23, OS_VECTORS},
    {"avxvnniint8", 7, 1, EDX, 4, OS_VECTORS},
    {"avxneconvert", 7, 1, EDX, 5, OS_VECTORS},
    {"avxvnniint16", 7, 1, EDX, 10, OS_VECTORS},
    {"ccmp", 7, 1, EDX, 21, OS_APX},
    {"cf", 7, 1, EDX, 21, OS_APX},
    {"egpr", 7, 1, EDX, 21, OS_APX},
    {"ndd", 7, 1, EDX, 21, OS_APX},
    {"nf", 7, 1, EDX, 21, OS_APX},
    {"ppx", 7, 1, EDX, 21, OS_APX},
    {"push2pop2", 7, 1, EDX, 21, OS_APX},
    {"zu", 7, 1, EDX, 21, OS_APX},
};

static uint32_t kept_registers(void) {
  uint32_t found[4] = {0}, low, high;
  if (!__get_cpuid(1, &found[EAX], &found[EBX], &found[ECX], &found[EDX]) || !(found[ECX] >> 27 & 1)) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

/* Whether this CPU has a feature; one that has no row is not looked for. */
static int has_feature(const char *name) {
  for (size_t i = 0; i < sizeof cpu_features / sizeof *cpu_features; i++) {
    uint32_t found[4] = {0}, kept = cpu_features[i].kept;
    if (strcmp(name, cpu_features[i].name)) continue;
    if (!__get_cpuid_count(cpu_features[i].leaf, cpu_features[i].subleaf, &found[EAX], &found[EBX], &found[ECX], &found[EDX]))
      return 0;
    return (found[cpu_features[i].part] >> cpu_features[i].bit & 1) && (kept_registers() & kept) == kept;
  }
  return 1;
}
#elif defined(__aarch64__)
static const struct {
  const char *name;
  int type, bit;
} cpu_features[] = {{"neon", AT_HWCAP, 1},  {"fullfp16", AT_HWCAP, 10}, {"dotprod", AT_HWCAP, 20},
                    {"fp16fml", AT_HWCAP, 23},  {"complxnum", AT_HWCAP, 14}, {"sha3", AT_HWCAP, 17},
                    {"sve", AT_HWCAP, 22},  {"sve2", AT_HWCAP2, 1},     {"sve-bitperm", AT_HWCAP2, 4},
                    {"i8mm", AT_HWCAP2, 13}, {"bf16", AT_HWCAP2, 14},    {"cssc", AT_HWCAP2, 34},
                    {"mops", AT_HWCAP2, 43}, {"faminmax", AT_HWCAP2, 50}};

static int has_feature(const char *name) {
  for (size_t i = 0; i < sizeof cpu_features / sizeof *cpu_features; i++)
    if (!strcmp(name, cpu_features[i].name)) return getauxval(cpu_features[i].type) >> cpu_features[i].bit & 1;
  return 1;
}
#else
#error "free-standing libraries are for x86-64 and AArch64"
#endif

int af_check_cpu(void) {
  for (const char *const *feature = AF(network).features; *feature; feature++)
    if (!has_feature(*feature))
      return af_fail(AF(WRONG_CPU), "this CPU lacks %s: compile the model on this machine or for its device profile", *feature);
  return AF(OK);
}

int af_usable_cpus(void) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  long online = sysconf(_SC_NPROCESSORS_ONLN); /* a machine of more CPUs than such a set holds */
  return online > 0 ? (int)online : 1;
}
