/* What our C asks of a file before the dynamic loader may see it: SHA-256 of its parts (FIPS 180-4), and
   whether the ELF image stays within its bytes. `autofuse/backend/container/elf.py` is the same in Python. */
#ifndef AUTOFUSE_CHECK_H
#define AUTOFUSE_CHECK_H

#include <elf.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
#define AF_FAST __attribute__((optimize("O3"))) /* a hundred megabytes of weights: also in a program built without -O */
#else
#define AF_FAST
#endif

static const uint32_t sha_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

#define AF_TURN(x, n) ((x) >> (n) | (x) << (32 - (n)))

AF_FAST static void sha_block(uint32_t *state, const uint8_t *block) {
  uint32_t w[64], s[8];
  for (int i = 0; i < 16; i++, block += 4)
    w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
  for (int i = 16; i < 64; i++) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (AF_TURN(a, 7) ^ AF_TURN(a, 18) ^ a >> 3) + w[i - 7] + (AF_TURN(b, 17) ^ AF_TURN(b, 19) ^ b >> 10);
  }
  memcpy(s, state, sizeof s);
  for (int i = 0; i < 64; i++) {
    uint32_t one = AF_TURN(s[4], 6) ^ AF_TURN(s[4], 11) ^ AF_TURN(s[4], 25), zero = AF_TURN(s[0], 2) ^ AF_TURN(s[0], 13) ^ AF_TURN(s[0], 22);
    uint32_t first = s[7] + one + ((s[4] & s[5]) ^ (~s[4] & s[6])) + sha_constants[i] + w[i];
    uint32_t second = zero + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    s[7] = s[6], s[6] = s[5], s[5] = s[4], s[4] = s[3] + first, s[3] = s[2], s[2] = s[1], s[1] = s[0], s[0] = first + second;
  }
  for (int i = 0; i < 8; i++) state[i] += s[i];
}

/* Whether the SHA-256 of `size` bytes at `data` is the 32 bytes at `wanted`. */
AF_FAST static int sha_is(const void *data, uint64_t size, const void *wanted) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const uint8_t *bytes = (const uint8_t *)data;
  uint8_t last[128] = {0}, digest[32];
  uint64_t whole = size / 64, rest = size % 64, end = rest < 56 ? 64 : 128;
  for (uint64_t i = 0; i < whole; i++) sha_block(state, bytes + 64 * i);
  if (rest) memcpy(last, bytes + 64 * whole, rest);
  last[rest] = 0x80;
  for (int i = 0; i < 8; i++) last[end - 1 - i] = (uint8_t)(size * 8 >> 8 * i);
  for (uint64_t i = 0; i < end; i += 64) sha_block(state, last + i);
  for (int i = 0; i < 32; i++) digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
  return !memcmp(digest, wanted, 32);
}

/* Whether `size` bytes of the file come to lie at `start`: what a segment does not read from it is zero. */
static int elf_inside(const Elf64_Phdr *segments, int count, uint64_t start, uint64_t size) {
  for (int i = 0; i < count; i++)
    if (segments[i].p_type == PT_LOAD && segments[i].p_vaddr <= start && size <= segments[i].p_filesz &&
        start - segments[i].p_vaddr <= segments[i].p_filesz - size)
      return 1;
  return 0;
}

/* Why the dynamic section is none; NULL when it is one, and every address in it that the loader follows is inside. */
static const char *elf_dynamic(const char *image, const Elf64_Phdr *segments, int count) {
  const Elf64_Phdr *found = NULL;
  for (int i = 0; i < count; i++) {
    if (segments[i].p_type != PT_DYNAMIC) continue;
    if (found) return "it has two dynamic sections";
    found = &segments[i];
  }
  if (!found || !elf_inside(segments, count, found->p_vaddr, found->p_filesz)) return "its dynamic section is missing or elsewhere";
  for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= found->p_filesz; at += sizeof(Elf64_Dyn)) {
    Elf64_Dyn entry;
    memcpy(&entry, image + found->p_offset + at, sizeof entry);
    switch (entry.d_tag) {
      case DT_NULL: return NULL;
      case DT_PLTGOT: case DT_HASH: case DT_STRTAB: case DT_SYMTAB: case DT_RELA: case DT_INIT: case DT_FINI: case DT_REL:
      case DT_JMPREL: case DT_INIT_ARRAY: case DT_FINI_ARRAY: case DT_PREINIT_ARRAY: case DT_GNU_HASH: case DT_VERSYM:
      case DT_VERDEF: case DT_VERNEED:
        if (!elf_inside(segments, count, entry.d_un.d_ptr, 1)) return "its dynamic section points outside of it";
    }
  }
  return "its dynamic section has no end";
}

/* Why the `size` bytes at `image` are no shared object of 64 bits within themselves; NULL when they are one. */
static const char *elf_problem(const char *image, uint64_t size) {
  enum { MOST_SEGMENTS = 64 };
  const uint64_t most_memory = 1ull << 32;
  Elf64_Ehdr header;
  Elf64_Phdr segments[MOST_SEGMENTS];
  uint64_t total = 0, end = 0;
  if (size < sizeof header) return "its headers point outside of it";
  memcpy(&header, image, sizeof header);
  if (memcmp(header.e_ident, "\177ELF\2\1\1", 7) || header.e_type != ET_DYN) return "it is no shared object of 64 bits";
  if (header.e_phentsize != sizeof *segments || !header.e_phnum) return "it has no segments";
  if (header.e_phnum > MOST_SEGMENTS || header.e_phoff > size || size - header.e_phoff < header.e_phnum * sizeof *segments)
    return "its headers point outside of it";
  memcpy(segments, image + header.e_phoff, header.e_phnum * sizeof *segments);
  for (int i = 0; i < header.e_phnum; i++) {
    const Elf64_Phdr *one = &segments[i];
    if (one->p_filesz > size || one->p_offset > size - one->p_filesz) return "a segment of it lies beyond its end";
    if (one->p_type != PT_LOAD) continue;
    if (one->p_filesz > one->p_memsz || one->p_memsz > most_memory - total) return "the sizes of its segments are impossible";
    if (one->p_vaddr > most_memory || one->p_vaddr < end) return "its segments overlap";
    total += one->p_memsz;
    end = one->p_vaddr + one->p_memsz;
  }
  return elf_dynamic(image, segments, header.e_phnum);
}

#endif
