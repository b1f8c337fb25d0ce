/* The code and weights of a model's segments, in memory: checked, and once for all sessions that use them. */
#ifndef AUTOFUSE_PAYLOAD_H
#define AUTOFUSE_PAYLOAD_H

#include "segments.h"

enum { DIGEST_BYTES = 32, REASON_BYTES = 1024 };

typedef struct af_payload {
  struct af_payload *next;
  unsigned char digest[DIGEST_BYTES];
  int users, file, has_sizes; /* open ones */
  void *library;
  unsigned char *bytes;
  size_t size, mapped;
  const af_segments *segments;
} af_payload;

/* Writes the bytes of a payload to `bytes`, where there is room for `size`, and says how many they are; with NULL there,
   says how much room they take. Returns 0, or writes why not. */
typedef int (*af_read)(void *source, unsigned char *bytes, size_t *size, char *reason);

/* The payload of this SHA-256, read unless somebody uses it already; NULL with a `reason` of REASON_BYTES when it is
   damaged or cannot be loaded. None of it is mapped as code before its digest is right. */
af_payload *af_take_payload(const unsigned char *digest, af_read read, void *source, char *reason);

/* The last user's end unloads it. */
void af_leave_payload(af_payload *payload);

/* The 32 bytes of 64 hexadecimal digits that end `text`; 0 when there are none. */
int af_digest_of(const char *text, unsigned char *digest);

#endif
