"""Small templates with every supported filter, test, operator and method, applied to unusual values.

make_templates.py records Jinja's results in tests/data/templates/jinja.json: GROUPS, a list of forms and of the values
that replace X in each form.
"""

VARIABLES = {
    "s": "Hello, wörld! ",
    "e": "",
    "u": "ÄßΣ ς Ǆ ŉ ﬁ é",
    "blanks": "  a \t b\u3000c \n",
    "lines": "one\ntwo\r\n\nfour",
    "html": "<a href=\"x\">T&'</a> b <!-- c -->d",
    "number": "42",
    "long": "The quick-brown fox, well--known, jumps over https://a.example/b?c=d. It's a (www.b.org) x@y.de lazy dog\n\nEnd",
    "n": -7,
    "zero": 0,
    "f": 2.5,
    "yes": True,
    "nothing": None,
    "l": [3, 1, 2],
    "names": ["b", "A", "a", "C"],
    "mixed": [1, "a", None, 2.0, [1]],
    "records": [{"k": "x", "v": 2, "i": {"j": 1}}, {"k": "Y", "v": 1, "i": {"j": 3}}, {"k": "x", "v": 3}],
    "d": {"b": 1, "A": 2, "c": None},
    "no_items": [],
    "no_pairs": {},
    "far": {"a": ["x" * 30, "y" * 30, "z" * 30], "b": {"c": "word " * 30, "d": [1.5, None]}},
}
VALUES = [*VARIABLES, "missing"]

ARGUMENTS = {
    "default": ["", "'x'", "'x', true"],
    "d": ["1"],
    "dictsort": ["", "true", "false, 'value'", "reverse=true", "by='zz'"],
    "float": ["", "1.5"],
    "format": ["", "1", "1, 2"],
    "indent": ["", "'> '", "2, true, true", "first=true"],
    "int": ["", "9"],
    "join": ["", "', '", "'-', attribute='k'", "1"],
    "map": ["", "'upper'", "attribute='k'", "attribute='i.j', default='q'", "'default', 'x'", "attribute=0"],
    "max": ["", "true", "attribute='v'"],
    "min": ["", "true", "attribute='v'"],
    "reject": ["", "'none'", "'equalto', 'a'", "'odd'"],
    "select": ["", "'none'", "'string'", "'in', [1, 'a']"],
    "selectattr": ["", "'k'", "'k', 'equalto', 'x'", "'i.j', 'defined'", "'v', '>', 1"],
    "rejectattr": ["'k'", "'k', 'equalto', 'x'", "'i.j', 'defined'"],
    "replace": ["'l', 'L', 1", "'', '-'", "'', '-', 3", "1, 2", "'a'"],
    "round": ["", "1", "1, 'ceil'", "0, 'floor'", "2, 'x'"],
    "sort": ["", "true", "case_sensitive=true", "attribute='v'", "attribute='k,v'", "reverse=true, attribute='k'"],
    "sum": ["", "start=10", "attribute='v'", "attribute='v', start=1.5"],
    "trim": ["", "'Ha'"],
    "unique": ["", "true", "attribute='k'"],
    "tojson": ["", "indent=2", "ensure_ascii=true", "separators=(',', ':')", "sort_keys=true", "indent='\t'"],
}
FILTERS = sorted(
    {*ARGUMENTS, *"abs capitalize count e escape first items last length list".split()}
    | {*"lower reverse safe string title upper".split()}
)
LAZY = "items map reject rejectattr reverse select selectattr unique".split()  # printed as an address

METHODS = {
    "": "capitalize split rsplit splitlines strip lstrip rstrip format pop update isalnum isalpha isdigit isspace items"
    " keys lower title upper values append nope",
    "'l'": "count find index rfind rindex removeprefix removesuffix startswith endswith partition rpartition join",
    "''": "count find partition split startswith",
    "('H', 'x')": "startswith endswith",
    "none": "split rsplit strip splitlines",
    "' ', 1": "split rsplit",
    "none, 1": "split rsplit",
    "maxsplit=1": "split rsplit",
    "true": "splitlines",
    "keepends=true": "splitlines",
    "'H !'": "strip lstrip rstrip",
    "'l', 'LL', 1": "replace",
    "'', '-'": "replace",
    "['a', 'b']": "join",
    "[1]": "join",
    "'b'": "get index count",
    "'nope', 9": "get",
    "1": "get index count",
    "a=1": "format",
}
METHOD_VALUES = ["s", "e", "u", "blanks", "lines", "number", "'٣²½'", "n", "f", "nothing", "l", "names", "(1, 'l')", "d"]
METHOD_VALUES += ["missing", "(s | safe)"]

TESTS = {
    "": "boolean defined even false float integer iterable mapping none number odd sequence string true undefined"
    " nope eq",
    "(1)": "divisibleby eq == equalto ge > gt greaterthan le < lt lessthan ne != >= <= in",
    "('a')": "eq gt in divisibleby",
    "([1, 'a'])": "in eq",
    "(missing)": "eq lt in",
}
TEST_VALUES = [*VALUES[:-2], "missing", "range(3)", "('A' | safe)", "1", "1.0", "'A'", "'1a'", "namespace()"]

OPERATORS = "+ - * / // % == != < > <= >= in and or ~".split() + ["not in"]
OPERANDS = ["s", "e", "n", "zero", "f", "yes", "nothing", "l", "d", "no_items", "missing", "2", "'2'", "(1, 2)", "3"]
OPERANDS += ["(-2.5)", "'%s'", "('x' | safe)", "'<'", "1e20", "range(3)"]

ALONE = r"""
{% for x in [1, 2] %}{% endfor %}{{ x }}
{% for x in [1, 2] %}{% if y is defined %}again{% endif %}{% set y = 1 %}{% endfor %}{{ y }}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(a=1) %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns['a'] }}{{ ns }}
{% set ns = {} %}{% set ns.a = 1 %}
{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, b=3) }}|{{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[1, 2], **{'c': 3}) }}
{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}in{% endcall %}
{% macro m() %}[{{ caller(1, b=2) }}]{% endmacro %}{% call(a, b=3) m() %}{{ a }}{{ b }}{{ e }}{% endcall %}
{% macro m() %}[{{ caller() }}]{% endmacro %}{{ m() }}
{% macro m() %}x{% endmacro %}{% call m() %}in{% endcall %}
{% macro m(caller) %}{{ caller() }}{% endmacro %}
{% macro m(x) %}{% if caller %}{{ caller() }}{% else %}no{% endif %}{% endmacro %}{{ m(1) }}{% call m(2) %}yes{% endcall %}
{% macro f(n) %}{% if n <= 1 %}1{% else %}{{ n * f(n - 1) | int }}{% endif %}{% endmacro %}{{ f(5) }}
{% macro m() %}{{ later }}{% endmacro %}{% set later = 5 %}{{ m() }}
{% for a, b in d.items() %}{{ a }}={{ b }};{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for x in l %}{{ loop.index }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}
{% for x in l %}{{ loop.length }}{{ loop.cycle('a', 'b') }},{% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}
{% for x in l | select('odd') %}{{ loop.last }}{{ loop.length }}{% endfor %}{% for x in missing %}{% else %}empty{% endfor %}
{% for x in none %}{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% break %}
{% for i in [1] %}{{ loop([2]) }}{% endfor %}
{% set x %}a{{ n }}b{% endset %}{{ x }}|{% set y | upper %}abc{% endset %}{{ y }}|{% set z | trim | replace('a', 'b') %} aca {% endset %}{{ z }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{% set t = 1, %}{{ t }}
{% set 1 = 2 %}
{% filter upper %}abc{{ s }}{% endfilter %}{% filter replace('a', 'b') | upper %}a{% endfilter %}
{% with a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{% endwith %}{{ a }}
{{ 1 if s }}|{{ 1 if e }}|{{ 1 if e else 2 if zero else 3 }}|{{ (1 if e) is defined }}
{% raw %}{{ x }}{% y %}{% endraw %}|{%- raw -%}  a  {%- endraw -%} b
{{ 'a\nb\x41\u00e9\'\"\\\d' }}{{ "a" 'b' }}
{{ 1000 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 00 }} {{ 10.01 }} {{ 1e100 }} {{ 1e16 }} {{ 0.1 + 0.2 }}
{{ 007 }}
{{ 1abc }}
{{ 1 < 2 < 3 }}{{ 1 < 2 > 3 }}{{ 1 == true }}{{ [1, 2] < [1, 3] }}{{ not 1 == 2 }}{{ not not 1 }}
{{ 10 // 3 * 3 + 10 % 3 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 1 ~ 2 == '12' }}
{{ 1 + 2 ~ 3 + 4 }}
{{ l[0] }}{{ l[-1] }}{{ l[5] }}{{ l['a'] }}{{ l[1:] }}{{ l[::-1] }}{{ l[:-1] }}{{ l.0 }}{{ (1, 2, 3)[1:] }}{{ range(9)[2] }}
{{ s[1:3] }}{{ u[::-1] }}{{ s[100] }}{{ s[-3] }}{{ u[1:100:2] }}
{{ l[::0] }}
{{ d[1:] }}
{{ missing.x }}
{{ d.nope.x }}
{{ missing() }}
{{ s() }}
{{ d.nope }}{{ nothing.x }}{{ s.x }}{{ n.x }}{{ d.update is defined }}{{ d.items is defined }}{{ d['items'] is defined }}
{{ l.append(1) }}
{{ s.__class__ }}{{ s.__class__.x }}
{{ d.items() }}{{ d.keys() }}{{ d.values() }}{{ d.items() | length }}{{ d.items()[0] }}{{ 'b' in d.keys() }}{{ 'b' in d }}
{% set g = l | map('string') %}{{ g | list }}{{ g | list }}{{ 'y' if no_items | map('string') else 'n' }}
{{ l | select | last }}
{{ (l | map('string')) | length }}
{{ dict(a=1) }}{{ dict([('a', 1)], b=2) }}{{ {1: 2, 'a': [1], (1, 2): none, none: 1} }}{{ {'a': 1, 'a': 2} }}
{{ {[1]: 2} }}
{{ {'a': 'b"c', "d'e": 'f\'g"h', 'é': '\x00\x7f\u200b\n'} }}{{ [missing] }}
{{ [missing] | tojson }}
{{ namespace(_a=1) }}
{{ range(3) }}{{ range(1, 10, 3) | list }}{{ range(5, 0, -2) | list }}{{ range(3) == range(0, 3) }}
{{ range(100001) }}
{{ s is string and s is not none or false }}{{ 4 is divisibleby 2 }}{{ 'a' is in ['a'] }}{{ not 1 is number }}{{ 3 is odd is true }}
{% if false %}{{ s | foo }}{{ s is foo }}{% endif %}ok
{{ s | foo }}
{{ 1 in 5 }}
{{ '%s-%d-%05.1f-%%-%03d|%3d|' % ('a', 37, 2.25, -5, 8) }}{{ '%s' % l }}{{ '%s=%s' | format('a', [1]) }}
{{ '%d' % 'a' }}
{{ '%s %s' % 'a' }}
{{ '%s' % (1, 2) }}
{{ '{} {} {}'.format(1, 'a', 2.5) }}{{ '{0}{1}{0}'.format('a', 'b') }}{{ '{a}{b}'.format(a=1, b='x') }}{{ '{{}}'.format() }}
{{ '{:05d}|{:.2f}|{:8.1f}|{:d}|{:s}|{n:03d}'.format(42, 3.14159, -2.25, true, 'é', n=-7) }}
{{ '{}'.format() }}
{{ '{:d}'.format('a') }}
{{ -1 | abs }}{{ 1 + 2 | string | length }}{{ 'x' | upper ~ 'y' }}{{ (s | upper).lower() }}
{{ true + true }}{{ true and 'a' }}{{ '' or 'b' }}{{ 0 or none }}{{ no_items and 1 }}
{{ ('a' | safe) + '<' }}{{ '<' + ('a' | safe) }}{{ ('a' | safe) ~ '<' }}{{ '<' | e | e }}
{{ ('%s' | safe) % '<' }}{{ ('{}' | safe).format('<') }}{{ ['<' | safe, '<'] | join('&') }}{{ ('&' | safe).join(['<']) }}
{{ raise_exception('no') }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 'x' + messages[0].nope | trim + 'y' }}
{{ 'x' + d.nope | trim + 'y' }}{{ d.nope | upper }}{{ d.nope | length }}{{ d.nope | list }}{{ d.nope | join }}
{{ 'a' + [1] }}
{{ 'a' + none }}
{{ [0] == [0] }}{{ 'yes' if {} else 'no' }}{{ none }}{{ 7 / 2 }}{{ 'x' ~ 0.5 }}{{ 'a b c'.split(' ', 1)[1] }}
{{ {'a': {'b': [1, 2, {}], 'c': []}} | tojson(indent=2) }}{{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}{{ (1, 2) | tojson }}
{{ 'é\u2028😀' | tojson(ensure_ascii=true) }}{{ 'a/b\x7f\x01<' | tojson }}
{{ {(1, 2): 3} | tojson }}
{% generation %}a{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}
{% do x %}
{{ s
}}{{ 1 2 }}
""".strip().split("\n")
# Line ends and blanks.
ALONE += [
    "{% raw %}\n a\n{% endraw %}\nb\n",
    "  {% raw -%}\n a\n {%- endraw %}\n  b",
    "a\n  {% if s %}  \n  x\n  {% endif %}  \n  b\n",
    "a\n\n  {%- if s -%}\n\n x \n{%- endif -%}\n\nb",
    "  {# c #}\n  x\n",
    "  {#- c -#}\n  x\n",
    "{# c +#}\nx",
    "x {{- n }}\n{{ n -}}\n y",
    "\n\n{{ n }}\n\n",
    "a\r\nb\r{{ 'x\r\ny' }}\r\n",
    "{%+ if s %}\n  a{% endif +%}\n b",
    "    {% if s %}{% endif %}    {% if s %}\n{% endif %}x",
    "\t{%+ if s %}a{% endif %}",
    "\u00a0{% if s %}x{% endif %}",
    "x\u3000{%- if s -%}\u2003x{% endif %}",
    "{% set x %}\n  a\n{% endset %}\n[{{ x }}]",
    "{#\n c\n#}\n\nx{{ '{% raw %}' }}{# {{ #}",
    "{{ {'a': {'b': 1}}}}{{ 'a}}b' }}{% set x = '%}' %}{{ x }}",
]


def groups() -> list[tuple[list[str], list[str]]]:
    """Pairs of values and of forms; each value in turn replaces the X of a form."""
    filters = [
        "{{ X | " + name + (f"({given})" if given else "") + (" | list }}" if name in LAZY else " }}")
        for name in FILTERS
        for given in ARGUMENTS.get(name, [""])
    ]
    views = ("items", "keys", "values")
    methods = [
        "{{ X." + name + f"({given})" + (" | list }}" if name in views else " }}")
        for given, names in METHODS.items()
        for name in names.split()
    ]
    tests = [
        "{{ X is " + name + given + " }}"
        for given, names in TESTS.items()
        for name in names.split()
        if name.isalpha()
    ]
    signs = [f"{{{{ [X] | select('{name}', 1) | list }}}}" for name in "== != < <= > >=".split()]
    operators = [
        f"{{{{ X {sign} {right} }}}}"
        for sign in OPERATORS
        for right in OPERANDS
    ]
    return [(VALUES, filters), (METHOD_VALUES, methods), (TEST_VALUES, tests + signs), (OPERANDS, operators), ([""], ALONE)]
