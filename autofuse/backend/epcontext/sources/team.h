/* Threads that somebody lends for a while, as a team: see team.c. */
#ifndef AUTOFUSE_TEAM_H
#define AUTOFUSE_TEAM_H

#include "threads.h"

#pragma GCC visibility push(hidden)

/* `lead(data)`: what one of the threads does, while the others take tasks of the launches that it makes. */
typedef struct {
  af_pool *pool;
  int (*lead)(void *data);
  void *data;
  int code;
  atomic_int led, over;
} af_team;

/* A thread of the team `team`; whatever comes first leads. */
void af_join(void *team, size_t number);

#pragma GCC visibility pop
#endif
