#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "payload.h"

#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20, ALIGNMENT = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static af_payload *loaded;

#define REFUSE(...) return snprintf(reason, REASON_BYTES, __VA_ARGS__), -1

int af_digest_of(const char *text, unsigned char *digest) {
  size_t length = strlen(text);
  if (length < 2 * DIGEST_BYTES) return 0;
  text += length - 2 * DIGEST_BYTES;
  if (strspn(text, "0123456789abcdef") != 2 * DIGEST_BYTES) return 0;
  for (int i = 0; i < DIGEST_BYTES; i++) {
    char two[3] = {text[2 * i], text[2 * i + 1], 0};
    digest[i] = (unsigned char)strtoul(two, NULL, 16);
  }
  return 1;
}

static int fill(af_payload *made, af_read read, void *source, char *reason) {
  size_t size = 0;
  if (read(source, NULL, &size, reason)) return -1;
  if (size < sizeof(af_payload_head)) REFUSE("its code is not there, or cut off (%zu bytes)", size);
  void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) REFUSE("no memory for its code and weights (%zu bytes)", size);
  if (size >= HUGE_PAGE) madvise(bytes, size, MADV_HUGEPAGE);
  made->bytes = bytes;
  made->mapped = made->size = size;
  if (read(source, made->bytes, &made->size, reason)) return -1;
  if (made->size > made->mapped || !sha_is(made->bytes, made->size, made->digest))
    REFUSE("its code is damaged, or of another model (its SHA-256 is not the one that the model names)");
  mprotect(made->bytes, made->mapped, PROT_READ);
  return 0;
}

/* The image as a file that only this process has and nobody can write to. It stays open: the dynamic loader knows
   libraries by their names, and the name has its number. */
static int image_file(const unsigned char *image, size_t size, char *reason) {
  int file = memfd_create("autofuse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) REFUSE("there is no file in memory for its code: %s", strerror(errno));
  for (size_t written = 0; written < size;) {
    ssize_t count = write(file, image + written, size - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      int problem = errno;
      close(file);
      REFUSE("its code cannot be written to memory: %s", strerror(problem));
    }
    written += (size_t)count;
  }
  fcntl(file, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
  return file;
}

static int load(af_payload *made, char *reason) {
  af_payload_head head;
  char name[64];
  memcpy(&head, made->bytes, sizeof head);
  if (memcmp(head.magic, SEGMENTS_MAGIC, sizeof head.magic)) REFUSE("what it holds is no code of autofuse");
  made->has_sizes = head.format == SEGMENTS_FORMAT_OF_SIZES || head.format == SEGMENTS_FORMAT_OF_SUMS;
  if (head.format != SEGMENTS_FORMAT && !made->has_sizes)
    REFUSE("another autofuse compiled it (format %u, this provider reads %d, %d and %d): compile the model again, or register the provider of that version", head.format, SEGMENTS_FORMAT, SEGMENTS_FORMAT_OF_SIZES, SEGMENTS_FORMAT_OF_SUMS);
  if (head.image_offset > made->size || head.image_bytes > made->size - head.image_offset ||
      head.weights_offset > made->size || head.weights_bytes > made->size - head.weights_offset ||
      head.image_offset % ALIGNMENT || head.weights_offset % ALIGNMENT)
    REFUSE("its code is damaged (its parts lie beyond its end)");
  const char *problem = elf_problem((const char *)made->bytes + head.image_offset, head.image_bytes);
  if (problem) REFUSE("its code is damaged (%s)", problem);
  if ((made->file = image_file(made->bytes + head.image_offset, head.image_bytes, reason)) < 0) return -1;
  snprintf(name, sizeof name, "/proc/self/fd/%d", made->file);
  if ((made->library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) == NULL) REFUSE("its code cannot be loaded: %s", dlerror());
  af_open_segments open;
  *(void **)&open = dlsym(made->library, SEGMENTS_OPEN);
  if (!open) REFUSE("its code has no segments");
  made->segments = open(made->bytes + head.weights_offset);
  return 0;
}

static void end(af_payload *payload) {
  if (payload->library) dlclose(payload->library);
  if (payload->file >= 0) close(payload->file);
  if (payload->bytes) munmap(payload->bytes, payload->mapped);
  free(payload);
}

static af_payload *new_payload(const unsigned char *digest, af_read read, void *source, char *reason) {
  af_payload *made = calloc(1, sizeof *made);
  if (!made) return snprintf(reason, REASON_BYTES, "out of memory"), NULL;
  made->file = -1;
  memcpy(made->digest, digest, DIGEST_BYTES);
  if (fill(made, read, source, reason) || load(made, reason)) return end(made), NULL;
  made->next = loaded;
  return loaded = made;
}

af_payload *af_take_payload(const unsigned char *digest, af_read read, void *source, char *reason) {
  pthread_mutex_lock(&lock);
  af_payload *found = loaded;
  while (found && memcmp(found->digest, digest, DIGEST_BYTES)) found = found->next;
  if (!found) found = new_payload(digest, read, source, reason);
  if (found) found->users++;
  pthread_mutex_unlock(&lock);
  return found;
}

void af_leave_payload(af_payload *payload) {
  if (!payload) return;
  pthread_mutex_lock(&lock);
  if (--payload->users == 0) {
    af_payload **place = &loaded;
    while (*place != payload) place = &(*place)->next;
    *place = payload->next;
    end(payload);
  }
  pthread_mutex_unlock(&lock);
}
