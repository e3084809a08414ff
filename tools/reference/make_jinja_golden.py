"""Goldens of the template engine: snippets and what jinja2 makes of them.

Program: jinja2 in the environment of transformers' chat templates (versions in provenance file).
Seed:    5. No input.
Rerun:   python -m venv v && v/bin/pip install transformers==5.23.0 jinja2==3.1.6
         v/bin/python tools/reference/make_jinja_golden.py tests/golden/jinja

snippets.jsonl, one object a line: "template", "variables", and "output", or "error": the name of the
exception. Each variable is JSON.
"""

import argparse
import copy
import itertools
import json
import pathlib
import random

from transformers.utils import chat_template_utils

import provenance

SEED = 5
VARIABLES = {
    "s": "Hello World", "e": "", "u": "  ÄÖ ß ŉ ǆ İ ΑΣ 中文 😀\u00a0\u3000 ", "q": "a'b\"c\\d\n\t\x7f\u200b\u00ad",
    "i": 42, "n": -7, "z": 0, "f": 0.1, "g": 1e20, "h": 1e-7, "k": 2.0, "big": 123456789012345678901234567890,
    "t": True, "no": False, "nil": None, "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "m": [1, "a", None, 2.5, True],
    "d": {"b": 1, "A": [1, {"x": None}], "a": "z", "Z": 1.5}, "o": {}, "lo": [],
    "msgs": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None},
             {"role": "tool", "content": [{"type": "text", "text": " x "}]}],
    "nested": {"items": {"type": "string"}, "keys": [1]}, "tags": "a<|b|>c<|b|>d<|b|>", "csv": "a, b,,c ,",
    "lines": "one\ntwo\r\n\nthree\n",
}  # fmt: skip
NAMES = list(VARIABLES)

EXPRESSIONS = """
1 | 1.0 | 1e3 | 1e16 | 1e15 | 123456789.123 | 1e-4 | 1e-5 | 0.1 + 0.2 | 1_000 | 0x1F | 0b101 | 0o17 | 1/3 | 7//2 | -7//2 | 7%-3
-7%3 | 7.5//2 | -7.5%2 | 2**10 | 2**-1 | 2**0.5 | -2**2 | 1e308*10 | 5/0 | 5//0 | 5%0 | 10/2 | 3*1.5 | true+1 | 1+'a' | 'a'+1
'a' 'b' | 'a' ~ 1 ~ none ~ 1.5 | 'ab'*3 | 3*'ab' | [1]*2 | [1]+[2] | (1,2)+(3,) | (1,) | () | (1) | [] | {} | {'a':1,'b':[1,2]}
{1:'a', 1.0:'b', true:'c'} | 'abc'[0] | 'abc'[-1] | 'abc'[5] | 'abc'[1:] | 'abc'[::-1] | 'abc'[:2] | l[0] | l[-1] | l[9] | l[1:] | l[::-1]
l[::2] | l[5:] | l[-2:] | l[:-1] | l[2:0:-1] | u[2:5] | u[::-1] | d.a | d['a'] | d.missing | d['missing'] | d.missing.more | missing.more
missing | missing[0] | nil.x | nil['x'] | s.x | s['x'] | msgs[0].role | msgs[0]['role'] | msgs[1:] | msgs[9].role | nested['items'] | nested.keys
d['items'] is mapping | d['items'] is defined | nested['items'] is mapping | s['title'] is defined | s['upper'] is callable | s['nothing'] is defined
not t | not e | t and 5 | e or 'x' | none or 0 | 1 if t else 2 | 1 if no | (1 if no) is defined | 1 if no else 2 if no else 3 | 1 < 2 < 3 | 1 < 3 < 2
1 == 1.0 | 1 == true | 'a' == 1 | l == [3,1,2] | d == {} | none == none | missing == missing | missing == none | 1 < 'a' | none < 1 | 'a' < 'b' | [1,2] < [1,3]
1 in l | 9 in l | 'a' in d | 'ell' in s | 1 in s | 'x' not in s | none in m | 1 in missing | 1 in nil | 'a' in ('a','b') | i != 42 | not 1 == 2
-i | +n | - -1 | -'a' | -missing | missing + 1 | missing ~ 'x' | missing | length | missing | list | missing is sequence | missing is iterable
s is string | i is number | f is float | i is float | t is integer | t is number | t is boolean | nil is none | nil is defined | d is mapping | l is sequence
d is sequence | s is sequence | i is sequence | range(3) is sequence | range(3) | range(1,9,3) | range(3)|list | range(5,0,-2)|list | range(0) is iterable
range(4)[1] | range(4)[-1] | range(3)|length | i is even | i is odd | i is divisibleby 7 | i is divisibleby(5) | i is eq 42 | i is ne 42 | i is gt 3 | i is in [42]
i is not none | i is sameas 42 | t is true | t is false | s is upper | 'AB' is upper | 'ab' is lower | '1' is lower | d.items is callable | big | big is integer
big is number | [big] | -0.0 | [0.1, 1e20, 1.0] | [none, true] | q | [q] | ["'"] | ['"'] | ["'\\""] | u | [u] | d | msgs | (1,'a',2.0) | {'a':(1,)}
'\\n\\t\\x41\\u00e9\\101\\q' | "it's" | 'say "x"' | '{{ x }}' | '%}' | namespace(a=1).a | namespace(a=1).b is defined | namespace(a=1)['a'] | dict(a=1,b=2) | dict({'x':1},y=2)
dict([('a',1)]) | namespace({'x': 3}).x | raise_exception('no') | undefined_function(1) | s() | d() | s.upper(1) | s.nothing() | loop | range(1000000) | 'a' is nosuchtest
""".replace("\n", " | ").strip()

FILTERS = """
upper;lower;title;capitalize;trim;string;length;count;list;first;last;reverse;sort;dictsort;items;tojson;int;float;abs;round
unique;min;max;sum;join;join(', ');join('-', attribute='role');default('D');default('D', true);d('x');replace('l','L');replace('l','L',1);replace('','-')
map('upper');map('upper')|list;map(attribute='role')|list;map(attribute='role', default='?')|list;map('length')|list;select|list;reject|list;select('string')|list
selectattr('role','equalto','user')|list;rejectattr('role','equalto','user')|list;selectattr('content')|list;tojson(indent=2);tojson(sort_keys=true)
tojson(ensure_ascii=true);tojson(separators=(',',':'));round(1);round(2,'floor');round(0,'ceil');int(7);int(0,16);float(1.5);sort(reverse=true);sort(case_sensitive=true)
dictsort(true);dictsort(false,'value');dictsort(reverse=true);dictsort(by='key')|list;trim('H d');trim(' ');indent;indent(2);indent(2,true);indent(2,true,true);batch(2)|list
batch(2,'x')|list;attr('upper');sum(start=10);unique|list;reverse|list;list|length;string|length;first|upper;sort|first;min(attribute='role');nosuchfilter;items|list
""".replace("\n", ";").strip().split(";")

METHODS = """
s.upper() | s.lower() | s.title() | "they're x".title() | s.capitalize() | u.strip() | u.lstrip() | u.rstrip() | s.strip('Hd') | s.split() | s.split(' ') | s.split('o') | s.split('o',1)
s.rsplit('o',1) | tags.split('<|b|>') | tags.split('<|b|>')[-1] | tags.split('<|b|>')[0] | csv.split(',') | csv.rsplit(',', 2) | s.split('') | u.split() | u.split(none, 1) | ' a b  c '.split(none,1)
' a b  c '.rsplit(none,1) | ' a b '.split(none,2) | lines.splitlines() | lines.splitlines(true) | s.startswith('He') | s.startswith(('x','H')) | s.endswith('d') | s.endswith('x')
s.replace('o','0') | s.replace('o','0',1) | s.replace('','.') | s.find('o') | s.find('zz') | s.rfind('o') | u.find('中') | s.index('W') | s.index('zz') | s.count('o') | s.count('') | ','.join(ls) | ','.join(l)
','.join('abc') | 'x'.join([]) | s.removeprefix('Hello ') | s.removesuffix('World') | s.removeprefix('x') | d.get('a') | d.get('x') | d.get('x','y') | d.get('x', default='y') | d.keys() | d.values() | d.items() | d.items()|list
d.keys()|list | o.items() | d.items()|length | d.get([]) | l.index(1) | l.index(9) | l.count(1) | ls.append('x') | d.update({}) | d.pop('a') | s.__class__ | d.copy() | nested['items'].get('type') | u.upper() | u.lower() | u.title() | u.capitalize()
'ΑΣ ΣΑ Σ'.lower() | 'ß ﬁ ŉ'.upper() | 'ǆ ǅ'.title() | 'İI'.lower() | '\\x1c\\x85\\u2028 a \\u200b'.strip() | 'a\\x0bb\\x0cc\\x1cd\\u2028e'.splitlines() | 'a\\x1fb\\u3000c'.split()
""".replace("\n", " | ").strip()

STATEMENTS = [
    "{% for x in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.revindex }}:{{ x }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}", "{% for k, v in d|dictsort %}{{ k }}={{ v }},{% endfor %}",
    "{% for x in lo %}a{% else %}none{% endfor %}", "{% for x in missing %}a{% else %}none{% endfor %}", "{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{% else %}-{% endfor %}",
    "{% for x in l if x > 9 %}{{ x }}{% else %}-{% endfor %}", "{% for x in s %}{{ x }}.{% endfor %}", "{% for x in d %}{{ x }}{% endfor %}", "{% for x in 5 %}{% endfor %}",
    "{% for x in nil %}{% endfor %}", "{% for a, b in [(1,2),(3,4)] %}{{ a+b }} {% endfor %}", "{% for a, b in [(1,2,3)] %}{% endfor %}", "{% for (a, b) in [[1,2]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% for y in l %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}|{% endfor %}", "{% break %}",
    "{% for x in l %}{{ loop.cycle('a','b') }}{% endfor %}", "{% for x in [1,1,2] %}{{ loop.changed(x) }}{% endfor %}", "{% for x in l recursive %}{{ x }}{% endfor %}" if False else "{{ loop is defined }}",
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}", "{% set ns = namespace(a=0) %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace() %}{% set ns.b = 'x' %}{{ ns.b }}{{ ns.c is defined }}", "{% set ns.a = 1 %}", "{% set d.a = 1 %}", "{% set ns = namespace(_a=1) %}", "{{ namespace(a=1, b='x') }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1, 2] %}{{ a }}{{ b }}", "{% set (a, b) = 'xy' %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set x %}a{{ i }}b{% endset %}[{{ x }}]",
    "{% set x | upper %}a{{ s }}b{% endset %}{{ x }}", "{% set x | upper | trim %} a {% endset %}[{{ x }}]", "{% set ns = namespace() %}{% set ns.x %}in{% endset %}{{ ns.x }}",
    "{% macro f(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ f(1) }} {{ f(1, 3) }} {{ f(b=5, a=4) }} {{ f() }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}",
    "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}", "{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(7) }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ f() }}", "{{ f is defined }}{% macro f() %}{% endmacro %}{{ f is defined }}{{ f is callable }}", "{% macro f() %}{{ caller() }}{% endmacro %}{% call f() %}in{% endcall %}",
    "{% macro f() %}{{ caller(1, b=2) }}{% endmacro %}{% call(a, b) f() %}{{ a }}{{ b }}{% endcall %}", "{% macro f(x) %}[{{ x }}]{{ caller() }}{% endmacro %}{% for i in l %}{% call f(i) %}{{ i }}{% endcall %}{% endfor %}",
    "{% for i in l %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}", "{% macro f(a, a2='x') -%}  {{ a ~ a2 }}  {%- endmacro %}[{{ f('q') }}]", "{% macro f(x) %}{% set y = x * 2 %}{{ y }}{% endmacro %}{{ f(2) }}{{ y is defined }}",
    "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'x': 2}) }}", "{% macro f(x) %} {{ x }} {% endmacro %}{{ f(1) | trim }}{{ f(2) + 'a' }}{{ f(3) is string }}",
    "{% if no %}a{% elif t %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}", "{% if missing %}a{% endif %}b", "{% if l %}a{% endif %}{% if lo %}b{% endif %}{% if o %}c{% endif %}{% if z %}d{% endif %}{% if k %}e{% endif %}",
    "{% if a.b %}x{% endif %}", "{% with a=1, b=2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a is defined }}", "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter upper|replace('A','b') %}aa{% endfilter %}",
    "{% raw %}{{ x }}{% if %}{% endraw %}", "{%- raw -%}  {{ x }}  {%- endraw -%}  a", "a {% raw %} b {% endraw %} c\n", "{# comment #}a{#- x -#}  b {#+ y +#} c", "a{# {{ x }} {% if %} #}b", "{% generation %}a{{ i }}{% endgeneration %}b",
    "{{ i }}\n", "{{ i }}\n\n", "a\r\nb\rc\n", "{{ 'a\nb' }}", "{% if t %}\na\n{% endif %}\nb", "  {% if t %}  \n  a\n  {% endif %}\n  b", "x  {% if t %}\na{% endif %}", "\t{%+ if t %}a{% endif +%}\n b", "a\n   {# c #}\nb", "a  \n{%- if t -%}\n  b  \n{%- endif -%}\n c",
    "a {{- i -}} b", "a {{ i }} b", "a\n {{- i }}\n {{ i -}}\n b", "{{- i -}}", "{%- if t %} a {%- endif %} b", "{% if t -%} a {%+ endif %} b", "   {%- set x = 1 -%}   {{ x }}", "{% set x = 1 %}   {{ x }}", "{% set x = 1 %}\n   {{ x }}\n", "{% for x in l -%}\n  {{ x }}\n{%- endfor %}\n",
    "{% for x in l %}\n  {{ x }}\n{% endfor %}\n", "\u00a0\u2003{% if t %}a{% endif %}", "a\u2028  {%- if t %}a{% endif %}", "{%+ set a = 1 +%}\nx", "{%\n if t\n%}a{%\nendif\n%}", "{{\n i\n}}", "{{ '{{' }}{{ '}}' }}{{ \"%}\" }}", "{{ {'a': {'b': 1}}['a']['b'] }}", "{{ {'a': {'b': 1}} }}",
    "{{ i", "{% if t %}", "{% endif %}", "{% nosuch %}", "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{{ [1, }}", "{{ a..b }}", "{% for %}{% endfor %}", "{% for x %}{% endfor %}", "{% set %}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{{ 'a }}", "{{ a b }}", "{{ 1 | }}", "{{ x is }}", "{% macro %}{% endmacro %}",
    "{% macro f(a=1, b) %}{% endmacro %}", "{# open", "{% raw %}x", "{{ a ! b }}", "{{ ] }}", "{{ 007 }}", "{{ a is b is c }}", "{{ f(a=1, 2) }}", "{% if t %}{% else %}{% elif %}{% endif %}", "{% call 1 %}{% endcall %}", "{{ x.5y }}",
    "{% set messages = msgs %}{% for m in messages %}{{ m['role'] }}{% if m['content'] is string %}{{ m['content'] | trim }}{% elif m['content'] is iterable %}{% for p in m['content'] %}{{ p['text'] | trim }}{% endfor %}{% endif %};{% endfor %}",
    "{{ msgs | map(attribute='role') | join(',') }}", "{{ msgs | selectattr('role', 'ne', 'tool') | map(attribute='role') | list }}", "{{ msgs | selectattr('content', 'string') | list | length }}", "{% set x = l | map('string') %}{{ x | join }}{{ x | join }}", "{{ (l | map('string') | list)[0] }}",
    "{{ ls | sort | join(' ') }}|{{ ls | sort(case_sensitive=true) | join(' ') }}", "{{ d | tojson }}{{ m | tojson }}{{ q | tojson }}{{ u | tojson }}", "{{ [1.0, 1e20, 1e-7, 0.1] | tojson }}", "{{ missing | tojson }}", "{{ [missing] }}", "{{ {'a': missing} }}", "{{ d | tojson(indent=4) }}", "{{ {} | tojson(indent=2) }}",
    "{{ {1: 'a', none: 'b', true: 'c'} | tojson }}", "{{ 'a<b>&\\'' | tojson }}", "{{ not not t }}", "{{ not (t and no) or no }}", "{{ 1 + 2 * 3 ** 2 }}", "{{ (1 + 2) * 3 }}", "{{ 1 ~ 2 + 3 }}", "{{ 'a' ~ 'b' * 2 }}", "{{ -1 | abs }}", "{{ 5 - -3 }}", "{{ 2 ** 3 ** 2 }}", "{{ 10 - 2 - 3 }}", "{{ 'a' if t else 'b' ~ 'c' }}",
    "{{ [1, 2,] }}{{ {'a': 1,} }}{{ (1, 2,) }}", "{{ s|upper|lower|title }}", "{{ s | replace('World', s) | length }}", "{{ 'a' | upper ~ 'b' }}", "{{ 'x' + 'a' | upper }}", "{{ l[0] + l[1] * l[2] }}", "{{ msgs[0].content[0] }}", "{{ msgs[-1]['content'][0]['text'].strip() }}", "{{ '%s' }}", "{{ d.b.c.d }}", "{{ d.A.1.x }}", "{{ d['A'][1]['x'] is none }}",
    "{% set ns = namespace(found=false) %}{% for x in l %}{% if not ns.found and x == 1 %}{% set ns.found = true %}{{ loop.index0 }}{% endif %}{% endfor %}{{ ns.found }}", "{{ loop_messages is defined }}{% set loop_messages = msgs[1:] %}{{ loop_messages | length }}", "{{ (msgs | last).role }}", "{{ (msgs | first)['role'] }}",
    "{%- for m in msgs -%}\n    {%- if loop.first -%}\n        {{- 'first' -}}\n    {%- elif loop.last -%}\n        {{- ' last' -}}\n    {%- endif -%}\n{%- endfor -%}\n", "{{- 'a' -}}\n\n    {{- 'b' }}\n    c", "{{ 'x' if loop is defined and loop.last }}", "{{ ',' if not loop.last }}",
]  # fmt: skip


def environment():
    return chat_template_utils._compile_jinja_template("x").environment


def render(env, template):
    case = {"template": template}
    try:
        case["output"] = env.from_string(template).render(**copy.deepcopy(VARIABLES))
        if " object at 0x" in case["output"] or " at 0x" in case["output"]:
            return None
    except Exception as error:  # noqa: BLE001 - the kind of failure is the golden
        case["error"] = type(error).__name__
    return case


def filter_snippets(rng):
    # jinja2 scales big integers with integer arithmetic, which the engine leaves out.
    left_out = {("big", "round(2,'floor')"), ("big", "round(0,'ceil')")}
    pairs = [pair for pair in itertools.product(NAMES, FILTERS) if pair not in left_out]
    rng.shuffle(pairs)
    return ["{{ " + name + " | " + f + " }}" for name, f in pairs]


def whitespace_snippets(rng, count):
    parts = ["{%- if t -%}", "{% if t %}", "{%+ if t +%}", "{%- if t %}", "{% if t -%}"]
    ends = ["{%- endif -%}", "{% endif %}", "{%+ endif +%}", "{% endif -%}"]
    fills = ["\n", " ", "  \n", "\n  ", "a", "{{ i }}", "{{- i -}}", "{# c #}", "{#- c -#}", "\t", "{% set x = 1 %}", "{%- set x = 1 -%}"]
    out = []
    for _ in range(count):
        fill = lambda: "".join(rng.choices(fills, k=rng.randint(0, 4)))  # noqa: E731
        out.append(fill() + rng.choice(parts) + fill() + rng.choice(ends) + fill() + rng.choice(["", "z", "\n"]))
    return out


def number_snippets(rng, count):
    out = []
    for _ in range(count):
        a = rng.choice([rng.uniform(-10, 10), rng.uniform(0, 1) * 10 ** rng.randint(-12, 25), rng.randint(-99, 99)])
        b = rng.choice([round(rng.uniform(-9, 9), rng.randint(0, 4)), rng.randint(1, 12)])
        op = rng.choice(["+", "-", "*", "/", "//", "%", "<", "==", "~"])
        out.append("{{ (" + repr(a) + ") " + op + " (" + repr(b) + ") }}")
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    rng = random.Random(SEED)
    snippets = list(STATEMENTS)
    for text in (EXPRESSIONS, METHODS):
        snippets += ["{{ " + e.strip() + " }}" for e in text.split(" | ") if e.strip()]
    snippets += ["{{ " + name + " }}{{ [" + name + "] }}" for name in NAMES]
    snippets += filter_snippets(rng)[:1400]
    snippets += whitespace_snippets(rng, 250)
    snippets += number_snippets(rng, 250)
    env = environment()
    cases, seen = [], set()
    for snippet in snippets:
        if snippet not in seen:
            seen.add(snippet)
            case = render(env, snippet)
            if case is not None:
                cases.append(case)
    args.out.mkdir(parents=True, exist_ok=True)
    with open(args.out / "snippets.jsonl", "w", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps({"variables": VARIABLES}, ensure_ascii=False) + "\n")
        for case in cases:
            file.write(json.dumps(case, ensure_ascii=False) + "\n")
    provenance.write(args.out, __file__, ["transformers", "jinja2"], SEED, count=len(cases))
    print(len(cases), "snippets,", sum("error" in case for case in cases), "errors")


if __name__ == "__main__":
    main()
