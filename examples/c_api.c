/* The C API: one answer as it comes.
 *   c_api MODEL [TEXT] */
#include <markbase/markbase.h>
#include <stdio.h>

/* Called from the engine's thread; `user` is what mb_generate was given. */
static int32_t on_event(const mb_event* event, void* user) {
  fwrite(event->text.data, 1, event->text.num_bytes, (FILE*)user);
  return 1; /* go on */
}

static int fail(mb_error* error) {
  fprintf(stderr, "%s\n", mb_error_message(error));
  mb_error_free(error);
  return 1;
}

static int answer(mb_engine* engine, const char* text) {
  mb_error* error = NULL;
  mb_request request;
  mb_completions* completions = NULL;
  mb_completion completion = {.size = sizeof(completion)}; /* every struct that may grow has it */
  mb_timings timings = {.size = sizeof(timings)};

  if (mb_request_init(&request, sizeof(request), engine, &error) != MB_OK) return fail(error);
  request.text = mb_text(text);
  request.max_tokens = 20;
  request.temperature = 0;
  if (mb_generate(engine, &request, on_event, stdout, &completions, NULL, &error) != MB_OK) {
    return fail(error);
  }
  printf("\n");
  if (mb_completion_get(completions, 0, &completion, &error) != MB_OK ||
      mb_completion_timings(completions, 0, &timings, &error) != MB_OK) {
    mb_completions_free(completions);
    return fail(error);
  }
  fprintf(stderr, "%zu tokens, %.1f a second; it ended with \"%s\"\n", completion.num_ids,
          timings.tokens_per_s, completion.finish_reason.data);
  mb_completions_free(completions);
  return 0;
}

int main(int argc, char** argv) {
  mb_error* error = NULL;
  mb_engine* engine = NULL;
  mb_model_info info = {.size = sizeof(info)};
  int result = 1;

  if (argc < 2) return fprintf(stderr, "usage: c_api MODEL [TEXT]\n"), 2;
  if (mb_engine_load(argv[1], NULL, &engine, &error) != MB_OK) return fail(error);
  if (mb_engine_model_info(engine, &info, &error) != MB_OK) {
    result = fail(error);
  } else {
    fprintf(stderr, "%s on %s, MarkBase %s\n", info.architecture.data, info.backend.data,
            mb_version());
    result = answer(engine, argc > 2 ? argv[2] : "The capital of France is");
  }
  mb_engine_free(engine);
  return result;
}
