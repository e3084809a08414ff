// Gemma 3's chat format, for checkpoints whose files have no template of their own.
#pragma once

#include <string_view>

namespace markbase::tokenizer {

// <bos>, then <start_of_turn>ROLE\nCONTENT<end_of_turn>\n for each message, then
// <start_of_turn>model\n. Texts are trimmed; a leading system message is put in front of the first
// user text, untrimmed, with an empty line between. Roles alternate, beginning with user. A message
// without a content is an empty turn, as transformers leaves out a null before it renders.
inline constexpr std::string_view kGemma3Template = R"jinja(
{{- bos_token -}}
{%- set turns = messages -%}
{%- set prefix = '' -%}
{%- if messages[0]['role'] == 'system' -%}
  {%- set content = messages[0]['content'] -%}
  {%- set prefix = (content if content is string else content[0]['text']) + '\n\n' -%}
  {%- set turns = messages[1:] -%}
{%- endif -%}
{%- for message in turns -%}
  {%- set expected = 'user' if loop.index0 % 2 == 0 else 'assistant' -%}
  {%- if (message['role'] == 'user') != (expected == 'user') -%}
    {{- raise_exception("message " ~ (loop.index0 + messages | length - turns | length) ~
        " has role '" ~ message['role'] ~ "', expected " ~ expected ~
        ": roles must alternate user/assistant, beginning with user") -}}
  {%- endif -%}
  {{- '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) -}}
  {{- '\n' -}}
  {%- if loop.first -%}{{- prefix -}}{%- endif -%}
  {%- if message['content'] is string -%}
    {{- message['content'] | trim -}}
  {%- else -%}
    {%- for part in message['content'] -%}
      {{- '<start_of_image>' if part['type'] == 'image' -}}
      {{- part['text'] | trim if part['type'] == 'text' -}}
    {%- endfor -%}
  {%- endif -%}
  {{- '<end_of_turn>\n' -}}
{%- endfor -%}
{{- '<start_of_turn>model\n' if add_generation_prompt -}}
)jinja";

}  // namespace markbase::tokenizer
