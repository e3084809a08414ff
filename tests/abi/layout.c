/* The layout of the C API's structs on machines with 64-bit pointers: compiled, not run. A line
 * that fails is a break of the binary interface; new fields come behind the last one and get lines
 * of their own. Also: the header is C11. */
#include <markbase/markbase.h>

#define FIELD(type, field, offset) \
  _Static_assert(offsetof(type, field) == (offset), #type "." #field " has moved")
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "the size of " #type)

FIELD(mb_string, data, 0);
FIELD(mb_string, num_bytes, 8);
SIZE(mb_string, 16);

FIELD(mb_progress, size, 0);
FIELD(mb_progress, what, 8);
FIELD(mb_progress, done, 24);
FIELD(mb_progress, total, 32);
FIELD(mb_progress, unit, 40);
SIZE(mb_progress, 48);

FIELD(mb_engine_options, size, 0);
FIELD(mb_engine_options, backend, 8);
FIELD(mb_engine_options, num_threads, 12);
FIELD(mb_engine_options, cpu_isa, 16);
FIELD(mb_engine_options, context_tokens, 24);
FIELD(mb_engine_options, kv, 32);
FIELD(mb_engine_options, prefill_chunk_tokens, 40);
FIELD(mb_engine_options, max_sequences, 48);
FIELD(mb_engine_options, max_queue, 56);
FIELD(mb_engine_options, prefix_cache, 64);
FIELD(mb_engine_options, repack_cache, 68);
FIELD(mb_engine_options, memory_bytes, 72);
FIELD(mb_engine_options, activations, 80);
FIELD(mb_engine_options, on_progress, 88);
FIELD(mb_engine_options, progress_user, 96);
FIELD(mb_engine_options, on_message, 104);
FIELD(mb_engine_options, message_user, 112);
SIZE(mb_engine_options, 120);

FIELD(mb_model_info, size, 0);
FIELD(mb_model_info, path, 8);
FIELD(mb_model_info, architecture, 24);
FIELD(mb_model_info, backend, 40);
FIELD(mb_model_info, vocab_size, 56);
FIELD(mb_model_info, context_tokens, 64);
FIELD(mb_model_info, has_chat_format, 72);
FIELD(mb_model_info, has_chat_template, 76);
FIELD(mb_model_info, has_thinking, 80);
FIELD(mb_model_info, has_tools, 84);
FIELD(mb_model_info, weight_bytes, 88);
FIELD(mb_model_info, weight_bytes_per_token, 96);
FIELD(mb_model_info, load_ms, 104);
FIELD(mb_model_info, temperature, 112);
FIELD(mb_model_info, top_k, 116);
FIELD(mb_model_info, top_p, 120);
FIELD(mb_model_info, min_p, 124);
FIELD(mb_model_info, repetition_penalty, 128);
SIZE(mb_model_info, 136);

FIELD(mb_tool_call, size, 0);
FIELD(mb_tool_call, name, 8);
FIELD(mb_tool_call, arguments, 24);
FIELD(mb_tool_call, id, 40);
SIZE(mb_tool_call, 56);

FIELD(mb_message, size, 0);
FIELD(mb_message, role, 8);
FIELD(mb_message, content, 24);
FIELD(mb_message, reasoning, 40);
FIELD(mb_message, tool_calls, 56);
FIELD(mb_message, num_tool_calls, 64);
FIELD(mb_message, tool_call_id, 72);
SIZE(mb_message, 88);

FIELD(mb_request, size, 0);
FIELD(mb_request, ids, 8);
FIELD(mb_request, num_ids, 16);
FIELD(mb_request, text, 24);
FIELD(mb_request, parse_special, 40);
FIELD(mb_request, enable_thinking, 44);
FIELD(mb_request, messages, 48);
FIELD(mb_request, num_messages, 56);
FIELD(mb_request, tools, 64);
FIELD(mb_request, max_tokens, 80);
FIELD(mb_request, temperature, 88);
FIELD(mb_request, top_k, 92);
FIELD(mb_request, top_p, 96);
FIELD(mb_request, min_p, 100);
FIELD(mb_request, repetition_penalty, 104);
FIELD(mb_request, answer_idx, 108);
FIELD(mb_request, seed, 112);
FIELD(mb_request, stop, 120);
FIELD(mb_request, num_stop, 128);
FIELD(mb_request, ignore_eos, 136);
FIELD(mb_request, num_answers, 140);
FIELD(mb_request, top_logprobs, 144);
FIELD(mb_request, priority, 148);
FIELD(mb_request, timeout_ms, 152);
SIZE(mb_request, 160);

FIELD(mb_token_logprob, id, 0);
FIELD(mb_token_logprob, logprob, 4);
SIZE(mb_token_logprob, 8);

FIELD(mb_token_logprobs, size, 0);
FIELD(mb_token_logprobs, chosen, 8);
FIELD(mb_token_logprobs, top, 16);
FIELD(mb_token_logprobs, num_top, 24);
SIZE(mb_token_logprobs, 32);

FIELD(mb_event, size, 0);
FIELD(mb_event, text, 8);
FIELD(mb_event, id, 24);
FIELD(mb_event, piece, 28);
FIELD(mb_event, call, 32);
FIELD(mb_event, logprobs, 40);
FIELD(mb_event, answer_idx, 48);
SIZE(mb_event, 56);

FIELD(mb_completion, size, 0);
FIELD(mb_completion, text, 8);
FIELD(mb_completion, reasoning, 24);
FIELD(mb_completion, finish_reason, 40);
FIELD(mb_completion, ids, 56);
FIELD(mb_completion, num_ids, 64);
FIELD(mb_completion, prompt_ids, 72);
FIELD(mb_completion, num_prompt_ids, 80);
FIELD(mb_completion, num_tool_calls, 88);
FIELD(mb_completion, num_broken_calls, 96);
FIELD(mb_completion, num_labels, 104);
FIELD(mb_completion, num_logprobs, 112);
FIELD(mb_completion, answer_idx, 120);
SIZE(mb_completion, 128);

FIELD(mb_timings, size, 0);
FIELD(mb_timings, load_ms, 8);
FIELD(mb_timings, prompt_tokens, 16);
FIELD(mb_timings, cached_tokens, 24);
FIELD(mb_timings, queue_ms, 32);
FIELD(mb_timings, prompt_ms, 40);
FIELD(mb_timings, ttft_ms, 48);
FIELD(mb_timings, generated_tokens, 56);
FIELD(mb_timings, decode_ms, 64);
FIELD(mb_timings, tokens_per_s, 72);
SIZE(mb_timings, 80);

FIELD(mb_broken_call, size, 0);
FIELD(mb_broken_call, text, 8);
FIELD(mb_broken_call, why, 24);
FIELD(mb_broken_call, truncated, 40);
SIZE(mb_broken_call, 48);

FIELD(mb_embed_request, size, 0);
FIELD(mb_embed_request, ids, 8);
FIELD(mb_embed_request, num_ids, 16);
FIELD(mb_embed_request, text, 24);
FIELD(mb_embed_request, pooling, 40);
FIELD(mb_embed_request, normalise, 44);
SIZE(mb_embed_request, 48);

FIELD(mb_engine_stats, size, 0);
FIELD(mb_engine_stats, running, 8);
FIELD(mb_engine_stats, waiting, 16);
FIELD(mb_engine_stats, steps, 24);
FIELD(mb_engine_stats, prompt_tokens, 32);
FIELD(mb_engine_stats, cached_tokens, 40);
FIELD(mb_engine_stats, generated_tokens, 48);
FIELD(mb_engine_stats, preemptions, 56);
FIELD(mb_engine_stats, kv_blocks, 64);
FIELD(mb_engine_stats, kv_blocks_used, 72);
FIELD(mb_engine_stats, kv_blocks_kept, 80);
FIELD(mb_engine_stats, step_ms, 88);
FIELD(mb_engine_stats, scheduling_ms, 96);
SIZE(mb_engine_stats, 104);

/* A translation unit holds something. */
int mb_layout_checked;
