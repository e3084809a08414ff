/* A user of the C API: a model that is not there must be refused with its name, not crash. */
#include <markbase/markbase.h>
#include <stdio.h>

int main(void) {
  mb_engine* engine = NULL;
  mb_tokenizer* tokenizer = NULL;
  mb_error* error = NULL;
  if (strcmp(mb_version(), MARKBASE_VERSION) != 0) return 1;
  if (mb_engine_load("no-such-model.gguf", NULL, &engine, &error) != MB_BAD_INPUT) return 2;
  if (engine != NULL || mb_error_status(error) != MB_BAD_INPUT) return 3;
  if (strstr(mb_error_message(error), "no-such-model.gguf") == NULL) return 4;
  mb_error_free(error);
  if (mb_tokenizer_load(NULL, &tokenizer, NULL) != MB_USAGE) return 5;
  puts(mb_version());
  return 0;
}
