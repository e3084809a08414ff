// Gemma 4's canonical chat format, for checkpoints whose files have no template of their own.
#pragma once

#include <string_view>

namespace markbase::tokenizer {

// Turns, thoughts, tool declarations, calls and results as the published format has them in its
// form for the small models: no empty thought is written where thinking is off.
inline constexpr std::string_view kGemma4Template = R"jinja(
{#- One JSON value: texts between quote tokens, keys in order without regard to case. -#}
{%- macro write_value(value, quote_keys) -%}
  {%- if value is string -%}
    {{- '<|"|>' + value + '<|"|>' -}}
  {%- elif value is none -%}
    {{- 'null' -}}
  {%- elif value is boolean -%}
    {{- 'true' if value else 'false' -}}
  {%- elif value is mapping -%}
    {{- '{' + write_pairs(value, quote_keys) + '}' -}}
  {%- elif value is sequence -%}
    {{- '[' -}}
    {%- for item in value -%}
      {{- write_value(item, quote_keys) -}}{{- '' if loop.last else ',' -}}
    {%- endfor -%}
    {{- ']' -}}
  {%- else -%}
    {{- value -}}
  {%- endif -%}
{%- endmacro -%}

{%- macro write_pairs(pairs, quote_keys) -%}
  {%- for key, value in pairs | dictsort -%}
    {{- '<|"|>' + key + '<|"|>' if quote_keys else key -}}
    {{- ':' -}}{{- write_value(value, quote_keys) -}}{{- '' if loop.last else ',' -}}
  {%- endfor -%}
{%- endmacro -%}

{%- macro write_names(names) -%}
  {%- for name in names -%}
    {{- '<|"|>' -}}{{- name -}}{{- '<|"|>' -}}{{- '' if loop.last else ',' -}}
  {%- endfor -%}
{%- endmacro -%}

{%- macro write_type(type) -%}
  {{- 'type:<|"|>' -}}{{- type | upper -}}{{- '<|"|>' -}}
{%- endmacro -%}

{#- What an array holds: its keys in order. -#}
{%- macro write_items(items) -%}
  {%- set out = namespace(comma='') -%}
  {%- for key, value in items | dictsort if value is not none -%}
    {{- out.comma -}}
    {%- set out.comma = ',' -%}
    {%- if key == 'properties' -%}
      {{- 'properties:{' -}}
      {%- if value is mapping -%}{{- write_properties(value) -}}{%- endif -%}
      {{- '}' -}}
    {%- elif key == 'required' -%}
      {{- 'required:[' + write_names(value) + ']' -}}
    {%- elif key == 'type' -%}
      {{- 'type:' -}}
      {{- write_value(value | upper if value is string else value | map('upper') | list, true) -}}
    {%- else -%}
      {{- key -}}{{- ':' -}}{{- write_value(value, true) -}}
    {%- endif -%}
  {%- endfor -%}
{%- endmacro -%}

{#- The fields of one property, each followed by a comma; its type comes last. -#}
{%- macro write_property(property) -%}
  {%- set type = property['type'] | upper -%}
  {%- if property['description'] -%}
    {{- 'description:<|"|>' -}}{{- property['description'] -}}{{- '<|"|>,' -}}
  {%- endif -%}
  {%- if type == 'STRING' and property['enum'] -%}
    {{- 'enum:' + write_value(property['enum'], true) + ',' -}}
  {%- elif type == 'ARRAY' and property['items'] is mapping and property['items'] -%}
    {{- 'items:{' + write_items(property['items']) + '},' -}}
  {%- endif -%}
  {%- if property['nullable'] -%}{{- 'nullable:true,' -}}{%- endif -%}
  {%- if type == 'OBJECT' -%}
    {%- if property['properties'] is mapping -%}
      {{- 'properties:{' + write_properties(property['properties']) + '},' -}}
    {%- else -%}
      {{- 'properties:{' + write_own_keys(property) + '},' -}}
    {%- endif -%}
    {%- if property['required'] -%}
      {{- 'required:[' + write_names(property['required']) + '],' -}}
    {%- endif -%}
  {%- endif -%}
  {{- write_type(property['type']) -}}
{%- endmacro -%}

{%- macro write_properties(properties) -%}
  {%- for key, property in properties | dictsort -%}
    {{- key -}}{{- ':{' + write_property(property) + '}' -}}{{- '' if loop.last else ',' -}}
  {%- endfor -%}
{%- endmacro -%}

{#- An object without properties: the keys it has besides the usual ones count as such. -#}
{%- macro write_own_keys(object) -%}
  {%- set out = namespace(comma='') -%}
  {%- for key, property in object | dictsort
      if key not in ['description', 'type', 'properties', 'required', 'nullable'] -%}
    {{- out.comma -}}{{- key -}}{{- ':{' + write_property(property) + '}' -}}
    {%- set out.comma = ',' -%}
  {%- endfor -%}
{%- endmacro -%}

{%- macro write_tool(function) -%}
  {{- '<|tool>declaration:' -}}{{- function['name'] -}}
  {{- '{description:<|"|>' -}}{{- function['description'] -}}{{- '<|"|>' -}}
  {%- set parameters = function['parameters'] -%}
  {%- if parameters -%}
    {{- ',parameters:{' -}}
    {%- if parameters['properties'] -%}
      {{- 'properties:{' + write_properties(parameters['properties']) + '},' -}}
    {%- endif -%}
    {%- if parameters['required'] -%}
      {{- 'required:[' + write_names(parameters['required']) + '],' -}}
    {%- endif -%}
    {%- if parameters['type'] -%}{{- write_type(parameters['type']) -}}{{- '}' -}}{%- endif -%}
  {%- endif -%}
  {%- if 'response' in function -%}
    {%- set response = function['response'] -%}
    {{- ',response:{' -}}
    {%- if response['description'] -%}
      {{- 'description:<|"|>' -}}{{- response['description'] -}}{{- '<|"|>,' -}}
    {%- endif -%}
    {%- if response['type'] | upper == 'OBJECT' -%}
      {{- write_type(response['type']) -}}{{- '}' -}}
    {%- endif -%}
  {%- endif -%}
  {{- '}<tool|>' -}}
{%- endmacro -%}

{%- macro write_call(function) -%}
  {{- '<|tool_call>call:' -}}{{- function['name'] -}}{{- '{' -}}
  {%- if function['arguments'] is mapping -%}
    {{- write_pairs(function['arguments'], false) -}}
  {%- elif function['arguments'] is defined and function['arguments'] is not none -%}
    {{- raise_exception('The arguments of a tool call must be an object.') -}}
  {%- endif -%}
  {{- '}<tool_call|>' -}}
{%- endmacro -%}

{%- macro write_response(name, response) -%}
  {{- '<|tool_response>response:' -}}{{- name -}}{{- '{' -}}
  {%- if response is mapping -%}
    {{- write_pairs(response, false) -}}
  {%- else -%}
    {{- 'value:' + write_value(response, false) -}}
  {%- endif -%}
  {{- '}<tool_response|>' -}}
{%- endmacro -%}

{%- macro write_medium(part) -%}
  {%- if part['type'] in ['image', 'image_url'] -%}
    {{- '<|image|>' -}}
  {%- elif part['type'] in ['audio', 'input_audio'] -%}
    {{- '<|audio|>' -}}
  {%- elif part['type'] == 'video' -%}
    {{- '<|video|>' -}}
  {%- endif -%}
{%- endmacro -%}

{#- What the model said, without thoughts that were left in it. -#}
{%- macro without_thoughts(text) -%}
  {%- set out = namespace(text='') -%}
  {%- for part in text.split('<channel|>') -%}
    {%- set out.text = out.text + part.split('<|channel>')[0] -%}
  {%- endfor -%}
  {{- out.text | trim -}}
{%- endmacro -%}

{%- macro write_content(content, is_model) -%}
  {%- if content is string -%}
    {{- without_thoughts(content) if is_model else content | trim -}}
  {%- elif content is sequence -%}
    {%- for part in content -%}
      {%- if part['type'] == 'text' -%}
        {{- without_thoughts(part['text']) if is_model else part['text'] | trim -}}
      {%- else -%}
        {{- write_medium(part) -}}
      {%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}

{#- A result given as a tool's message: the call's name, the text, then its media. -#}
{%- macro write_tool_message(message, calls) -%}
  {%- set out = namespace(name=message.get('name') or 'unknown', text='') -%}
  {%- for call in calls if call.get('id') and call.get('id') == message.get('tool_call_id') -%}
    {%- set out.name = call['function']['name'] -%}
  {%- endfor -%}
  {%- set content = message.get('content') -%}
  {%- if content is string or content is not sequence -%}
    {{- write_response(out.name, content) -}}
  {%- else -%}
    {%- for part in content if part['type'] == 'text' -%}
      {%- set out.text = out.text + part['text'] -%}
    {%- endfor -%}
    {{- write_response(out.name, out.text) -}}
    {%- for part in content -%}{{- write_medium(part) -}}{%- endfor -%}
  {%- endif -%}
{%- endmacro -%}

{{- bos_token -}}
{%- set turns = messages -%}
{%- set has_system = messages[0]['role'] in ['system', 'developer'] -%}
{%- if enable_thinking or tools or has_system -%}
  {{- '<|turn>system\n' -}}
  {%- if enable_thinking -%}{{- '<|think|>\n' -}}{%- endif -%}
  {%- if has_system -%}
    {%- set content = messages[0]['content'] -%}
    {%- set turns = messages[1:] -%}
    {%- if content is string -%}
      {{- content | trim -}}
    {%- elif content is sequence -%}
      {%- for part in content -%}{{- part['text'] | trim -}}{{- ' ' -}}{%- endfor -%}
    {%- endif -%}
  {%- endif -%}
  {%- for tool in tools or [] -%}{{- write_tool(tool['function']) -}}{%- endfor -%}
  {{- '<turn|>\n' -}}
{%- endif -%}

{%- set last = namespace(user=-1, turn=-1, role='', state='') -%}
{%- for message in turns -%}
  {%- if message['role'] == 'user' -%}{%- set last.user = loop.index0 -%}{%- endif -%}
  {%- if message['role'] != 'tool' -%}{%- set last.turn = loop.index0 -%}{%- endif -%}
{%- endfor -%}

{%- for message in turns -%}
  {%- if message['role'] != 'tool' -%}
    {%- set index = loop.index0 -%}
    {%- set is_model = message['role'] == 'assistant' -%}
    {%- set calls = message.get('tool_calls') or [] -%}
    {%- if not (is_model and last.role == 'assistant') -%}
      {{- '<|turn>' + ('model' if is_model else message['role']) + '\n' -}}
    {%- endif -%}

    {%- set thought = message.get('reasoning') or message.get('reasoning_content') -%}
    {%- if thought and is_model and (index > last.user or (preserve_thinking and calls)) -%}
      {{- '<|channel>thought\n' + thought + '\n<channel|>' -}}
    {%- endif -%}
    {%- for call in calls -%}{{- write_call(call['function']) -}}{%- endfor -%}

    {%- set found = namespace(responses=false, next_role='') -%}
    {%- for response in message.get('tool_responses') or [] -%}
      {{- write_response(response.get('name') or 'unknown', response['response']) -}}
      {%- set found.responses = true -%}
    {%- endfor -%}
    {%- for place in range(index + 1, turns | length) -%}
      {%- set follower = turns[place] -%}
      {%- if follower['role'] != 'tool' -%}
        {%- set found.next_role = follower['role'] -%}
        {%- break -%}
      {%- endif -%}
      {%- if calls and not message.get('tool_responses') -%}
        {{- write_tool_message(follower, calls) -}}
        {%- set found.responses = true -%}
      {%- endif -%}
    {%- endfor -%}

    {%- set content = write_content(message.get('content'), is_model) -%}
    {{- content -}}
    {%- if calls and not found.responses -%}
      {{- '<|tool_response>' -}}
    {%- elif is_model and found.next_role == 'assistant' -%}
    {%- elif not (found.responses and not content and index == last.turn) -%}
      {{- '<turn|>\n' -}}
    {%- endif -%}
    {%- set last.role = message['role'] -%}
    {%- set last.state = 'responses' if found.responses else 'pending' if calls else '' -%}
  {%- endif -%}
{%- endfor -%}

{%- if add_generation_prompt -%}
  {%- if last.state == '' -%}
    {{- '<|turn>model\n' -}}
  {%- elif last.state == 'responses' and enable_thinking -%}
    {{- '<|channel>thought\n' -}}
  {%- endif -%}
{%- endif -%}
)jinja";

}  // namespace markbase::tokenizer
