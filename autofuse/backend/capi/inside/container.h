/* A library file as autofuse.c reads it, before anything of it runs: its parts with their checksums, and the table that
   describes its programs. The file is described in autofuse/backend/container/container.py, its table in table.py there. */
#ifndef AUTOFUSE_CONTAINER_H
#define AUTOFUSE_CONTAINER_H

#include "check.h"
#include "runtime.h"
#include "sizes.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, SIGNATURE_BYTES = 32 + 64 + 8, DIGEST_BYTES = 32 };
static const int64_t TRAILER_BYTES = 8 + 4 * 8 + 4 * 32, MAX_TENSOR_BYTES = 1ll << 44;

struct af_model {
  char *file;
  size_t file_bytes;
  int64_t weights_start, weights_end, lines;
  int threads, weight_count, program_count, last, outputs_held;
  int programs_read;
  TVMFFIObjectHandle *weights;
  af_program *programs;
  TVMFFIObjectHandle module, machine, get_item, results;
  TVMFFIObjectHandle *outputs;
};

/* the table -------------------------------------------------------------------------------------------------- */

static int is_type(int code, int bits) {
  int whole = bits == 8 || bits == 16 || bits == 32 || bits == 64;
  if (code == kDLInt || code == kDLUInt) return whole;
  return code == kDLFloat ? whole && bits > 8 : code == kDLBool && bits == 8;
}

static int read_type(const char *text, af_spec *spec, int *used) {
  int code, bits, rank, here, place = 0;
  if (sscanf(text, "%d %d %d%n", &code, &bits, &rank, &place) != 3 || rank < 0 || rank > MAX_RANK ||
      !is_type(code, bits))
    return -1;
  spec->tensor = (DLTensor){.device = {kDLCPU, 0}, .ndim = rank, .dtype = {(uint8_t)code, (uint8_t)bits, 1}};
  spec->tensor.shape = spec->shape;
  for (int axis = 0; axis < rank; axis++) {
    long long size;
    if (sscanf(text + place, "%lld%n", &size, &here) != 1 || size < 0) return -1;
    spec->shape[axis] = size;
    place += here;
  }
  *used = place;
  return bytes_of(&spec->tensor) > MAX_TENSOR_BYTES ? -1 : 0;
}

static int read_weight(af_model *model, int index, const char *text) {
  af_spec spec;
  int used;
  long long offset;
  if (read_type(text, &spec, &used) || sscanf(text + used, "%lld", &offset) != 1) return -1;
  if (offset < model->weights_start || offset > model->weights_end - bytes_of(&spec.tensor)) return -1;
  spec.tensor.data = model->file + offset;
  model->weights[index] = tensor_over(&spec.tensor);
  return model->weights[index] == NULL ? -1 : 0;
}

static int read_spec(const char *text, af_spec *spec) {
  int used;
  if (read_type(text, spec, &used)) return -1;
  spec->name = strdup(text + used + (text[used] == ' '));
  return spec->name == NULL ? -1 : 0;
}

/* Whether the lines of the last program that was begun are all there. */
static int is_whole(const af_model *model, const int *seen) {
  if (!model->programs_read) return 1;
  const af_program *p = &model->programs[model->programs_read - 1];
  return seen[1] == p->inputs && seen[2] == p->outputs && seen[3] == p->weights;
}

static int begin_program(af_model *model, const char *text) {
  if (model->programs_read >= model->program_count) return -1;
  af_program *p = &model->programs[model->programs_read++];
  if (sscanf(text, "%63s %d %d %d", p->entry, &p->inputs, &p->outputs, &p->weights) != 4) return -1;
  if (p->inputs < 0 || p->outputs < 0 || p->weights < 0) return -1;
  model->lines -= (int64_t)p->inputs + p->outputs + p->weights; /* each has a line of its own */
  if (model->lines < 0) return p->inputs = p->outputs = p->weights = 0, -1;
  if (p->inputs != model->programs->inputs || p->outputs != model->programs->outputs) return -1;
  p->input = calloc(p->inputs + 1, sizeof *p->input);
  p->output = calloc(p->outputs + 1, sizeof *p->output);
  p->uses = calloc(p->weights + 1, sizeof *p->uses);
  for (int i = 0; i < p->inputs; i++) p->input[i].tensor.shape = p->input[i].shape;
  p->most = INT64_MAX;
  return p->input && p->output && p->uses ? 0 : -1;
}

static int has_feature(const char *flags, const char *wanted) {
  char want[64] = " ", have[64];
  size_t length = 1;
  for (const char *c = wanted; *c && length < sizeof want - 2; c++)
    if (*c != '_' && *c != '.' && *c != '-') want[length++] = *c;
  want[length] = 0;
  while (*flags) {
    size_t size = 0;
    have[size++] = ' ';
    for (; *flags && *flags != ' ' && *flags != '\n'; flags++)
      if (*flags != '_' && size < sizeof have - 1) have[size++] = *flags;
    have[size] = 0;
    const char *plain = strcmp(have, " bmi1") ? have : " bmi";
    if (!strcmp(plain, " asimd")) plain = " neon";
    if (!strcmp(plain, " asimdhp")) plain = " fullfp16";
    if (!strcmp(plain, " asimddp")) plain = " dotprod";
    if (!strcmp(plain, " asimdfhm")) plain = " fp16fml";
    if (!strcmp(plain, want)) return 1;
    if (*flags) flags++;
  }
  return 0;
}

static int check_feature(const char *name) {
  static _Thread_local char flags[16384];
  FILE *info = flags[0] ? NULL : fopen("/proc/cpuinfo", "r");
  if (info) {
    while (fgets(flags, sizeof flags, info))
      if (!strncmp(flags, "flags", 5) || !strncmp(flags, "Features", 8)) break;
    fclose(info);
  }
  if (has_feature(flags, name)) return 0;
  return fail("this machine's CPU lacks %s: compile the model on this machine or for its device profile", name);
}

/* One line of the table; the counts of what came before say where it belongs. */
static int read_line(af_model *model, const char *word, const char *rest, int *seen) {
  af_program *p = model->programs_read ? &model->programs[model->programs_read - 1] : NULL;
  if (!strcmp(word, "feature")) return check_feature(rest);
  if (!strcmp(word, "threads")) return sscanf(rest, "%d", &model->threads) == 1 ? 0 : -1;
  if (!strcmp(word, "weights")) {
    if (model->weights) return -1;
    if (sscanf(rest, "%d", &model->weight_count) != 1 || model->weight_count < 0 || model->weight_count > model->lines)
      return model->weight_count = 0, -1;
    return (model->weights = calloc(model->weight_count + 1, sizeof *model->weights)) ? 0 : -1;
  }
  if (!strcmp(word, "weight")) return seen[0] < model->weight_count ? read_weight(model, seen[0]++, rest) : -1;
  if (!strcmp(word, "programs")) {
    if (model->programs) return -1;
    if (sscanf(rest, "%d", &model->program_count) != 1 || model->program_count < 1 || model->program_count > model->lines)
      return model->program_count = 0, -1;
    return (model->programs = calloc(model->program_count, sizeof *model->programs)) ? 0 : -1;
  }
  if (!strcmp(word, "program")) {
    if (!is_whole(model, seen)) return -1;
    return seen[1] = seen[2] = seen[3] = 0, begin_program(model, rest);
  }
  if (!strcmp(word, "input")) return p && seen[1] < p->inputs ? read_spec(rest, &p->input[seen[1]++]) : -1;
  if (!strcmp(word, "output")) return p && seen[2] < p->outputs ? read_spec(rest, &p->output[seen[2]++]) : -1;
  if (!strcmp(word, "size")) return p ? read_size(p, rest, 0) : -1;
  if (!strcmp(word, "stepped")) return p ? read_size(p, rest, 1) : -1;
  if (!strcmp(word, "open")) return p && is_whole(model, seen) ? read_extent(p, rest) : -1;
  if (!strcmp(word, "further")) return p && is_whole(model, seen) ? read_further(p, rest) : -1;
  if (!strcmp(word, "cache")) return p ? read_cache(p, rest) : -1;
  if (!strcmp(word, "most")) return p ? read_most(p, rest) : -1;
  if (!strcmp(word, "uses")) {
    int position;
    if (!p || seen[3] >= p->weights || sscanf(rest, "%d", &position) != 1) return -1;
    if (position < 0 || position >= model->weight_count) return -1;
    return p->uses[seen[3]++] = position, 0;
  }
  return 0;
}

static int read_table(af_model *model, const char *path, char *text) {
  int seen[4] = {0, 0, 0, 0}, version = 0;
  char word[32], *rest = NULL;
  for (const char *c = text; *c; c++) model->lines += *c == '\n';
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    int used = 0;
    if (sscanf(line, "%31s %n", word, &used) < 1) continue;
    if (!strcmp(word, "autofuse") && sscanf(line + used, "%d", &version) == 1 && version == 2)
      return fail("%s: ONNX Runtime runs a part of this model, so only Python loads it", path);
    if (!strcmp(word, "autofuse") && (sscanf(line + used, "%d", &version) != 1 || version != 1))
      return fail("%s: made for another version of autofuse.c: compile the model again", path);
    error_text[0] = 0;
    if (read_line(model, word, line + used, seen))
      return error_text[0] ? -1 : fail("%s: the library is damaged (its table: %.60s)", path, line);
  }
  int whole = is_whole(model, seen) && seen[0] == model->weight_count && model->programs_read == model->program_count;
  if (version && model->program_count && whole) return 0;
  return fail("%s: the library is damaged (its table is incomplete)", path);
}

/* the file --------------------------------------------------------------------------------------------------- */

static int64_t number_at(const char *bytes) {
  uint64_t value;
  memcpy(&value, bytes, sizeof value);
  return (int64_t)value;
}

/* The parts of the file, in this order: ELF image, weights, JSON, table; their digests stand in the trailer. */
static int read_parts(af_model *model, const char *path, int64_t end) {
  const char *trailer = model->file + end;
  int64_t size[4], start[4];
  for (int i = 0; i < 4; i++) {
    size[i] = number_at(trailer + 8 + 8 * i);
    if (size[i] < 0 || size[i] > end) return fail("%s: not a library that autofuse wrote, or cut off", path);
    start[i] = i == 0 ? 0 : i == 1 ? (size[0] + PAGE - 1) / PAGE * PAGE : start[i - 1] + size[i - 1];
  }
  if (memcmp(trailer, "AUTOFUS2", 8) || start[3] + size[3] != end)
    return fail("%s: not a library that this version of autofuse wrote, or cut off", path);
  for (int i = 0; i < 4; i++)
    if (!sha_is(model->file + start[i], size[i], trailer + 8 + 4 * 8 + DIGEST_BYTES * i))
      return fail("%s: the library is damaged (it does not match its checksum)", path);
  const char *problem = elf_problem(model->file, size[0]);
  if (problem) return fail("%s: the library is damaged (its code: %s)", path, problem);
  model->weights_start = start[1];
  model->weights_end = start[1] + size[1];
  char *text = strndup(model->file + start[3], size[3]);
  int code = text ? read_table(model, path, text) : fail("out of memory");
  free(text);
  return code;
}

static int read_container(af_model *model, const char *path) {
  struct stat status;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &status)) return (void)(file >= 0 && close(file)), fail("%s: cannot be read", path);
  if (!S_ISREG(status.st_mode) || status.st_size <= TRAILER_BYTES)
    return close(file), fail("%s: not a library that autofuse wrote, or cut off", path);
  model->file_bytes = status.st_size;
  model->file = mmap(NULL, model->file_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  close(file);
  if (model->file == MAP_FAILED) return model->file = NULL, fail("%s: cannot be mapped", path);
  int64_t end = status.st_size - TRAILER_BYTES;
  if (end > SIGNATURE_BYTES && !memcmp(model->file + status.st_size - 8, "AFSIGNED", 8)) end -= SIGNATURE_BYTES;
  return read_parts(model, path, end);
}

#endif
