/* The functions that TVM's generated code calls: errors, workspace, and through pointers a launch of tasks. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "threads.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

_Thread_local char af_error_text[MOST_TEXT];
_Thread_local af_thread *af_current;

int af_fail(int code, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(af_error_text, sizeof af_error_text, format, values);
  va_end(values);
  return code;
}

void *af_aligned(uint64_t bytes) {
  void *made = NULL;
  uint64_t step = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
  if (posix_memalign(&made, step, bytes ? bytes : ALIGNMENT)) return NULL;
#ifdef MADV_HUGEPAGE
  if (bytes >= HUGE_PAGE) madvise(made, bytes, MADV_HUGEPAGE);
#endif
  return made;
}

static void note(af_pool *pool, const char *const *parts, int count) {
  size_t used = 0;
  pthread_mutex_lock(&pool->lock);
  for (int i = 0; i < count && used < MOST_TEXT - 1; i++) {
    size_t size = strlen(parts[i]), room = MOST_TEXT - 1 - used;
    memcpy(pool->text + used, parts[i], size < room ? size : room);
    used += size < room ? size : room;
  }
  pool->text[used] = 0;
  pthread_mutex_unlock(&pool->lock);
}

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t count) {
  (void)kind;
  if (af_current) note(af_current->pool, parts, count);
}

void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *text) {
  TVMFFIErrorSetRaisedFromCStrParts(kind, &text, 1);
}

/* The smallest block that is free and large enough, else one that is made larger; NULL when memory is short. */
static void *workspace(af_thread *thread, uint64_t bytes) {
  af_block *chosen = NULL, *spare = NULL;
  for (af_block *block = thread->blocks; block < thread->blocks + MOST_BLOCKS; block++) {
    if (block->used) continue;
    if (block->data && block->bytes >= bytes) {
      if (!chosen || block->bytes < chosen->bytes) chosen = block;
    } else if (!spare || block->bytes > spare->bytes) {
      spare = block;
    }
  }
  if (!chosen) {
    if (!spare) return NULL;
    free(spare->data);
    *spare = (af_block){af_aligned(bytes), bytes, 0};
    if (!spare->data) return spare->bytes = 0, NULL;
    chosen = spare;
  }
  chosen->used = 1;
  return chosen->data;
}

void *TVMBackendAllocWorkspace(int device, int number, uint64_t bytes, int code, int bits) {
  (void)device, (void)number, (void)code, (void)bits;
  void *made = af_current ? workspace(af_current, bytes) : NULL;
  if (!made && af_current) atomic_store(&af_current->pool->no_memory, 1);
  return made;
}

int TVMBackendFreeWorkspace(int device, int number, void *data) {
  (void)device, (void)number;
  if (!af_current) return -1;
  for (af_block *block = af_current->blocks; block < af_current->blocks + MOST_BLOCKS; block++)
    if (block->used && block->data == data) return block->used = 0;
  return -1;
}

int af_make_workspaces(af_pool *pool, int threads) {
  if ((pool->thread = calloc((size_t)threads, sizeof *pool->thread)) == NULL) return af_fail(AF(NO_MEMORY), "out of memory");
  pool->threads = threads;
  for (int i = 0; i < threads; i++) pool->thread[i] = (af_thread){.pool = pool, .number = i};
  return AF(OK);
}

void af_free_workspaces(af_pool *pool) {
  for (int i = 0; i < pool->threads; i++)
    for (int k = 0; k < MOST_BLOCKS; k++) free(pool->thread[i].blocks[k].data);
  free(pool->thread);
}

/* Generated code calls through these; its own definitions are weak. */
int (*__TVMBackendParallelLaunch)(af_task, void *, int) = TVMBackendParallelLaunch;
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = TVMBackendAllocWorkspace;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = TVMBackendFreeWorkspace;
void (*__TVMFFIErrorSetRaisedFromCStr)(const char *, const char *) = TVMFFIErrorSetRaisedFromCStr;
void (*__TVMFFIErrorSetRaisedFromCStrParts)(const char *, const char **, int32_t) = TVMFFIErrorSetRaisedFromCStrParts;
