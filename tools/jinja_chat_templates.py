# ruff: noqa: E501
"""Whole chat templates of our own, in the manner of the families whose features they join."""

CHATS: dict[str, str] = {}

CHATS["chatml with tools"] = r"""
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{% endif %}
    {{- "# Functions\n\nOne JSON object a line:\n<functions>" }}
    {%- for tool in tools %}
        {{- "\n" }}{{- tool | tojson }}
    {%- endfor %}
    {{- '\n</functions>\nWrite {"name": ..., "arguments": ...} inside <tool_call></tool_call>.<|im_end|>\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content %}{{- '\n' + message.content }}{% endif %}
        {%- for call in message.tool_calls or [] %}
            {%- if call.function is defined %}{% set call = call.function %}{% endif %}
            {{- '\n<tool_call>\n{"name": "' ~ call.name ~ '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
        {{- '\n<tool_response>\n' ~ message.content ~ '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\n' }}{% endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{% endif %}
"""

CHATS["header ids"] = r"""
{{- bos_token }}
{%- set date = date_string if date_string is defined else strftime_now("%d %b %Y") %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}{{- "Environment: ipython\n" }}{% endif %}
{{- "Today Date: " + date + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
        {%- if tools is not none and loop.first and message.role == 'user' %}
            {%- for t in tools %}
                {{- t | tojson(indent=4) }}
                {{- "\n\n" }}
            {%- endfor %}
        {%- endif %}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception("One call a turn, not " ~ message.tool_calls | length ~ ".") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function or message.tool_calls[0] %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' + tool_call.arguments | tojson + "}" }}
        {{- "<|eot_id|>" }}
    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is not string and message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}
"""

CHATS["instructions in brackets"] = r"""
{%- set loop_messages = messages[1:] if messages[0]["role"] == "system" else messages %}
{%- set system_message = messages[0]["content"] if messages[0]["role"] == "system" else "" %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val | tojson }}
                    {%- endif %}
                    {%- if not loop.last %}{{- ", " }}{% endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{% else %}{{- "]" }}{% endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = (tool_call.function or tool_call) | tojson %}
            {{- out[:-1] }}
            {%- if tool_call.id is defined %}{{- ', "id": "' + tool_call.id[-9:] + '"' }}{% endif %}
            {{- "}" }}
            {%- if not loop.last %}{{- ", " }}{% else %}{{- "]" + eos_token }}{% endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] | trim + eos_token }}
    {%- elif message["role"] in ["tool", "tool_results"] %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content | string + "}[/TOOL_RESULTS]" }}
    {%- else %}
        {{- raise_exception("Only user, assistant and tool may speak behind the system, not '" + message.role + "'.") }}
    {%- endif %}
{%- endfor %}
"""

CHATS["turns with other roles"] = r"""
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '

' if messages[0]['content'] is string else messages[0]['content'][0]['text'] -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- set names = {'assistant': 'model', 'tool': 'user'} -%}
{%- set ns = namespace(last='') -%}
{%- for message in loop_messages -%}
    {%- set role = names.get(message['role'], message['role']) -%}
    {%- if role not in ('user', 'model') -%}
        {{ raise_exception("Roles are user and model") }}
    {%- endif -%}
    {%- if ns.last != role -%}
        {{ ('<end_of_turn>
' if ns.last else '') + '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- endif -%}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] if item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endfor -%}
    {%- endif -%}
    {%- for call in message.tool_calls | default([], true) -%}
        {%- set f = call.function | default(call) -%}
        {{ '\n```tool_code\n' ~ f.name ~ '(' }}
        {%- if f.arguments is mapping -%}
            {%- for k, v in f.arguments | dictsort -%}{{ k ~ '=' ~ v }}{{ ', ' if not loop.last }}{%- endfor -%}
        {%- endif -%}
        {{ ')\n```' }}
    {%- endfor -%}
    {%- set ns.last = role -%}
{%- endfor -%}
{{ '<end_of_turn>
' }}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model
' }}
{%- endif -%}
"""

CHATS["keys and values in tags"] = r"""[gMASK]<sop>
{%- if tools -%}
<|system|>
# Tools

<tools>
{% for tool in tools %}
{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}
</tools>

<tool_call>{function-name}
<arg_key>{key}</arg_key>
<arg_value>{value}</arg_value>
</tool_call>{%- endif -%}
{%- macro visible_text(content) -%}
    {%- if content is string -%}
        {{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}
            {%- if item is mapping and item.type == 'text' -%}{{- item.text }}{%- elif item is string -%}{{- item }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{- content }}
    {%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last_user_index=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last_user_index = loop.index0 -%}{%- endif %}{%- endfor %}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible_text(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not visible_text(m.content).endswith("/nothink")) else '' -}}
{%- elif m.role == 'assistant' -%}
<|assistant|>
{%- set reasoning_content = '' %}
{%- set content = visible_text(m.content) %}
{%- if m.reasoning_content is string %}
    {%- set reasoning_content = m.reasoning_content %}
{%- elif '</think>' in content %}
    {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
    {%- set content = content.split('</think>')[-1].lstrip('\n') %}
{%- endif %}
{%- if loop.index0 > ns.last_user_index and reasoning_content -%}
{{ '\n<think>' + reasoning_content.strip() + '</think>' }}
{%- else -%}
{{ '\n<think></think>' }}
{%- endif -%}
{%- if content.strip() -%}
{{ '\n' + content.strip() }}
{%- endif -%}
{% if m.tool_calls %}
{% for tc in m.tool_calls %}
{%- if tc.function %}{%- set tc = tc.function %}{%- endif %}
{{ '\n<tool_call>' + tc.name }}
{% set _args = tc.arguments if tc.arguments is mapping else {'text': tc.arguments} %}
{% for k, v in _args.items() %}
<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
{% endfor %}
</tool_call>{% endfor %}
{% endif %}
{%- elif m.role == 'tool' -%}
{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|observation|>' }}{%- endif %}
{{- '\n<tool_response>\n' }}{{- m.content }}{{- '\n</tool_response>' }}
{%- elif m.role == 'system' -%}<|system|>
{{ visible_text(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    <|assistant|>{{- '\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}
{%- endif -%}
"""

CHATS["full-width bars"] = r"""
{%- if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif -%}
{%- if not thinking is defined %}{% set thinking = enable_thinking | default(false) %}{% endif -%}
{%- set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='', is_first_sp=true, is_last_user=false) -%}
{%- for message in messages -%}
    {%- if message['role'] == 'system' -%}
        {%- if ns.is_first_sp -%}
            {%- set ns.system_prompt = ns.system_prompt + message['content'] -%}
            {%- set ns.is_first_sp = false -%}
        {%- else -%}
            {%- set ns.system_prompt = ns.system_prompt + '\n\n' + message['content'] -%}
        {%- endif -%}
    {%- endif -%}
{%- endfor -%}
{{ bos_token }}{{ ns.system_prompt }}
{%- for message in messages -%}
    {%- if message['role'] == 'user' -%}
        {%- set ns.is_tool = false -%}{%- set ns.is_first = false -%}{%- set ns.is_last_user = true -%}
        {{ '<｜User｜>' + message['content'] }}
    {%- endif -%}
    {%- if message['role'] == 'assistant' and message['tool_calls'] is defined and message['tool_calls'] is not none -%}
        {%- if ns.is_last_user -%}{{ '<｜Assistant｜></think>' }}{%- endif -%}
        {%- set ns.is_last_user = false -%}{%- set ns.is_first = false -%}{%- set ns.is_tool = false -%}
        {%- for tool in message['tool_calls'] -%}
            {%- set f = tool['function'] if 'function' in tool else tool -%}
            {%- set arguments = f['arguments'] if f['arguments'] is string else f['arguments'] | tojson -%}
            {%- if not ns.is_first -%}
                {{ (message['content'] or '') + '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + f['name'] + '<｜tool▁sep｜>' + arguments + '<｜tool▁call▁end｜>' }}
                {%- set ns.is_first = true -%}
            {%- else -%}
                {{ '<｜tool▁call▁begin｜>' + f['name'] + '<｜tool▁sep｜>' + arguments + '<｜tool▁call▁end｜>' }}
            {%- endif -%}
        {%- endfor -%}
        {{ '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}
    {%- endif -%}
    {%- if message['role'] == 'assistant' and (message['tool_calls'] is not defined or message['tool_calls'] is none) -%}
        {%- if ns.is_last_user -%}
            {{ '<｜Assistant｜>' }}
            {%- if message['prefix'] is defined and message['prefix'] and thinking -%}{{ '<think>' }}{%- else -%}{{ '</think>' }}{%- endif -%}
        {%- endif -%}
        {%- set ns.is_last_user = false -%}
        {%- set content = message['content'] -%}
        {%- if '</think>' in content -%}{%- set content = content.split('</think>', 1)[1] -%}{%- endif -%}
        {{ content + '<｜end▁of▁sentence｜>' }}
    {%- endif -%}
    {%- if message['role'] == 'tool' -%}
        {%- set ns.is_last_user = false -%}{%- set ns.is_tool = true -%}
        {{ '<｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>' }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt and ns.is_last_user and not ns.is_tool -%}
    {{ '<｜Assistant｜>' }}{{ '<think>' if thinking else '</think>' }}
{%- endif -%}
"""

CHATS["thoughts of the last turn"] = r"""
{%- set ns = namespace(multi_step=true, last=messages | length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages | length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role != 'assistant' %}
        {{- '<|' ~ message.role ~ '|>\n' ~ content | trim ~ '<|end|>\n' }}
        {%- continue %}
    {%- endif %}
    {%- set thought = '' %}
    {%- if message.reasoning_content is string %}
        {%- set thought = message.reasoning_content %}
    {%- else %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
    {%- endif %}
    {%- if loop.index0 > ns.last and (loop.last or thought) %}
        {{- '<|assistant|>\n<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
    {%- else %}
        {{- '<|assistant|>\n' + content }}
    {%- endif %}
    {{- '<|end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{% else %}{{- '<think>\n' }}{% endif %}
{%- endif %}
"""

CHATS["macros and a namespace"] = r"""
{#- Types of a schema, written as code. -#}
{%- macro type_of(schema, depth=0) -%}
    {%- if schema.enum is defined -%}
        {{- schema.enum | map('tojson') | join(' | ') -}}
    {%- elif schema.type == 'object' -%}
        {{- '{' -}}
        {%- for name, inner in (schema.properties or {}).items() -%}
            {{- '\n' ~ '  ' * (depth + 1) -}}
            {%- if inner.description %}{{- '// ' ~ inner.description ~ '\n' ~ '  ' * (depth + 1) -}}{% endif -%}
            {{- name ~ ('' if name in (schema.required | default([])) else '?') ~ ': ' ~ type_of(inner, depth=depth + 1) -}}
            {%- if inner.default is defined %}{{- ' = ' ~ inner.default | tojson -}}{% endif -%}
            {{- ',' if not loop.last -}}
        {%- else -%}
            {{- ' ' -}}
        {%- endfor -%}
        {{- '}' -}}
    {%- elif schema.type is sequence and schema.type is not string -%}
        {{- schema.type | join(' | ') -}}
    {%- else -%}
        {{- {'integer': 'number', 'null': 'null'}.get(schema.type, schema.type) | default('any', true) -}}
    {%- endif -%}
{%- endmacro -%}
{%- macro turn(role, text, end='<|end|>') -%}
    {{- '<|start|>' ~ role ~ '<|message|>' ~ (text | trim) ~ end -}}
{%- endmacro -%}
{%- macro boxed(title) -%}{{- '[' ~ title | upper ~ ']\n' ~ caller() ~ '\n[/' ~ title | upper ~ ']\n' -}}{%- endmacro -%}
{%- set state = namespace(calls=[], count=0, system='You are ' ~ (model_identity | default('a helper')) ~ '.') -%}
{%- for message in messages if message.role == 'system' -%}
    {%- set state.system = state.system ~ '\n' ~ message.content -%}
{%- endfor -%}
{{- turn('system', state.system) -}}
{%- if tools -%}
    {%- call boxed('functions') -%}
        {%- for tool in tools -%}
            {%- if tool.function.description %}{{- '// ' ~ tool.function.description ~ '\n' -}}{% endif -%}
            {{- 'type ' ~ tool.function.name ~ ' = (_: ' ~ type_of(tool.function.parameters) ~ ') => any;' -}}
            {{- '\n' if not loop.last -}}
        {%- endfor -%}
    {%- endcall -%}
{%- endif -%}
{%- for message in messages | rejectattr('role', 'equalto', 'system') -%}
    {%- set state.count = state.count + 1 -%}
    {%- if message.role == 'assistant' -%}
        {%- if message.reasoning_content -%}{{- turn('assistant to=self', message.reasoning_content, '<|eom|>') -}}{%- endif -%}
        {%- if message.content -%}{{- turn('assistant', message.content) -}}{%- endif -%}
        {%- for call in message.tool_calls | default([]) -%}
            {%- set f = call.function | default(call) -%}
            {%- set state.calls = state.calls + [f.name] -%}
            {{- turn('assistant to=' ~ f.name, f.arguments if f.arguments is string else f.arguments | tojson(indent=2), '<|eom|>') -}}
        {%- endfor -%}
    {%- elif message.role == 'tool' -%}
        {%- set name = state.calls | first | default('unknown') -%}
        {%- set state.calls = state.calls[1:] -%}
        {{- turn(name ~ ' to=assistant', message.content) -}}
    {%- else -%}
        {%- filter replace('\n\n', '\n') -%}{{- turn(message.role, message.content) -}}{%- endfilter -%}
    {%- endif -%}
{%- endfor -%}
{%- if state.count > 12 %}{{- '<!-- ' ~ state.count ~ ' turns -->' -}}{% endif -%}
{%- if add_generation_prompt %}{{- '<|start|>assistant' -}}{% endif -%}
"""
