
/* A size that is open: a session takes any of `low` to `high`, in multiples of `step`. */
typedef struct {
  const char *name;
  int64_t low, high, step;
} @NAME@_range;

/* The open sizes; NULL beyond the last. */
const @NAME@_range *@NAME@_open_size(int index);

/* Sets the open size called `name` for the runs that follow: inputs are read and outputs written at this size. A session
   begins with the largest size, or with the smallest where it keeps caches. Memory is that of the largest size from the
   beginning, so that this allocates nothing; @NAME@_input and @NAME@_output say what it takes of the caller. */
int @NAME@_set_size(@NAME@_session *session, const char *name, int64_t size);

/* An open size as the session has it; -1 where there is none of this name. */
int64_t @NAME@_size(const @NAME@_session *session, const char *name);

/* An input or output at the sizes that the session has now; NULL beyond the last. */
const @NAME@_tensor *@NAME@_input_now(const @NAME@_session *session, int index);
const @NAME@_tensor *@NAME@_output_now(const @NAME@_session *session, int index);

/* A cache that the session keeps between runs, with the shape at the largest size, in which its memory lies; NULL beyond
   the last, and of most libraries at once. Its rows along the open axis count up to the open size: each run writes new
   rows behind them, and adds these to the size. Whoever fills rows in sets the size; set to the smallest, a new sequence begins. */
const @NAME@_tensor *@NAME@_cache(int index);
void *@NAME@_cache_memory(@NAME@_session *session, int index);
