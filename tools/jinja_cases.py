# ruff: noqa: E501
"""Expressions and templates that show each construct of chat templates; make_jinja_fixtures.py renders them."""

from __future__ import annotations

from typing import Any

CONTEXT: dict[str, Any] = {
    "i": 7,
    "n": -3,
    "z": 0,
    "f": 2.5,
    "big": 9007199254740993,
    "huge": 18446744073709551615,
    "t": True,
    "nil": None,
    "e": "",
    "s": "Hello World",
    "u": "Grüße, 世界 😀",
    "pad": "  \t pad\n\u00a0",
    "lines": "a\nb\r\n\nc",
    "l": [3, 1, 2],
    "empty": [],
    "words": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": 2, "C": 3},
    "nested": {"x": {"y": [10, {"z": "deep"}]}, "items": "shadowed", "get": 5, "_p": "private"},
    "rows": [
        {"n": "x", "v": 1, "g": "A", "o": {"k": 5}},
        {"n": "y", "v": 2, "g": "b", "o": {"k": 3}},
        {"n": "z", "v": 3, "g": "a"},
    ],
    "mixed": [1, "1", 1.0, True, None, [1], {"a": 1}],
    "html": "<a href=\"x\">'&'</a>",
    "floats": [0.1, 1e16, 1e-5, 123456789.0, -0.0, 1e100, 3.0, 1e15, 0.0001, 2.5e-7],
    "odd": "tab\there\\ \"dq\" 'sq' \x1b \x7f \u200b \u2028 é",
    "letters": "".join(
        map(chr, [*range(0xA1, 0x250), *range(0x370, 0x378), *range(0x1E90, 0x1EA0), *range(0x1F80, 0x1FB5)])
    ),
    "signs": "\u2160\u2170\u24b6\u24d0\u00b2\u2460\u2488\u02b0\ufb00\u01c5\u0130\u1c80\ua640",
    "sigma": "ΟΔΟΣ ΣΑΣ ß ŉ ǆ ﬁ İ",
}

EXPRESSIONS = r"""
i + 1
i - 10
i * n
i / 2
i // 2
i % 3
n // 2
n % 2
n // -2
n % -2
7.5 // 2
-7.5 // 2
7.5 % 2
-7.5 % 2
7 % -2.5
i ** 2
2 ** -1
2 ** 0.5
2 ** 62
i ** 2 ** 2
-2 ** 2
1 / 3
10 / 5
1e3
1_000 + 0x1F + 0b101 + 0o17
1.5e-3
00
0.1 + 0.2
1e16
1e22
123456789012345678.0
1e-5
0.0001
5e-324
1.7976931348623157e308
big
big + 1
huge
t + 1
true + true
i == 7.0
i == true
1 == true
1 == 1.0
"1" == 1
nil == none
none == false
big == 9007199254740992.0
i < 8
i < "a"
"a" < "b"
"Z" < "a"
l < [3, 2]
(1, 2) < (1, 3)
1 < 2 < 3
1 < 3 < 2
1 < 2 > 1
i != 7
i >= 7 and n <= 0
i > 100 or "fallback"
"" or 0 or none or []
"x" and 5
not i
not not e
not i == 7
i in [1, 7]
i not in [1, 7]
"ell" in s
"" in s
"x" in d
"a" in d
1 in d
3 in l
"1" in mixed
none in mixed
i in s
[1] in mixed
i is defined
missing is defined
missing is undefined
missing is not defined
not missing is defined
d.zzz is defined
nil is none
nil is not none
missing is none
t is true
t is false
i is true
1 is true
z is false
t is boolean
i is boolean
i is integer
t is integer
f is integer
f is float
i is float
i is number
t is number
s is number
s is string
i is string
d is mapping
l is mapping
l is sequence
s is sequence
d is sequence
i is sequence
missing is sequence
d.items() is sequence
l is iterable
s is iterable
i is iterable
nil is iterable
missing is iterable
range is callable
s is callable
missing is callable
s.upper is callable
i is odd
i is even
z is even
i is divisibleby 7
i is divisibleby(3)
i is eq 7
i is equalto(7)
i is ne 7
i is lt 8
i is le 7
i is gt 8
i is ge 7
i is greaterthan 6
i is lessthan 6
"a" is in "abc"
i is in [7]
i is not in([7])
s is lower
"abc" is lower
"ABC1" is upper
"" is lower
nil is sameas none
t is sameas true
1 is sameas true
"trim" is filter
"nope" is filter
"odd" is test
(html|safe) is escaped
html is escaped
i is defined and i > 5
i is odd or false
i is odd if true else 5
s is string and s is not none
l[0]
l[-1]
l[5]
l[-4]
l["a"]
l[true]
l[1.0]
l[none]
l[0:2]
l[:2]
l[1:]
l[::-1]
l[::2]
l[-2:]
l[5:1]
l[2:0:-1]
l[:]
l[::0]
l["a":]
l[none:2]
s[0]
s[-1]
s[100]
s[0:5]
s[::-1]
s[1:8:3]
s[-3:-1]
u[0]
u[2]
u[-1]
u[2:9]
u[::-1]
u[100:]
nil[0:1]
d[0:1]
i[0]
d.a
d["a"]
d.C
d["zz"]
d.zz
d.zz.yy
d["zz"]["yy"]
nested.x.y[1].z
nested["x"]["y"][0]
nested["items"]
nested["get"]
nested._p
nested["_p"]
nested.x.y.0
nil.foo
nil["foo"]
i.foo
s.foo
missing.foo
missing["foo"]
missing()
d.a()
s()
missing + 1
1 + missing
missing ~ "x"
missing
missing == missing
missing == none
missing < 1
-missing
missing in [1]
1 in missing
"a" in missing
missing * 2
missing % 2
"%s" % missing
"a" + missing
[missing]
{"a": missing}
"a" + "b"
"a" + 1
1 + "a"
"a" * 3
3 * "ab"
"a" * -1
"a" * 2.0
[1] + [2]
[1] * 2
2 * [1, 2]
(1,) + (2,)
[1] + (2,)
{"a": 1} + {"b": 2}
nil + 1
1 / 0
1 // 0
1 % 0
1.0 / 0
0 ** -1
0.0 ** -1.0
10.0 ** 400
1e308 * 10
-i
+i
-f
+t
-s
+s
- -i
"a" ~ 1 ~ 2.0 ~ none ~ true ~ [1]
1 ~ 2 + 3
1 + 2 ~ 3
"a" "b" 'c'
'it''s'
"\n\t\\\"\'\x41\u00e9\U0001F600\101\q"
"line\
joined"
"\é"
'a' if i else 'b'
'a' if z else 'b'
'a' if z
('a' if z) is defined
'a' if z else 'b' if z else 'c'
('a' if z).foo
[]
()
{}
(1,)
(1, 2)
1, 2
[1, 2,]
{"a": 1, "b": [1, {"c": none}]}
{"a": 1, "a": 2}
{1: "x", true: "y", 1.0: "z"}
{1: 2, none: 3, (1, 2): 4, 1.5: 6}
{[1]: 2}
{1: "x"}[1.0]
{(1, 2): "t"}[(1, 2)]
[1, "a", none, true, 1.5, [2], {"k": "v"}, (3,), missing]
["it's", 'say "hi"', "both ' and \"", "tab\t", "nl\n", "\\", "é", "😀", "\u200b", "\x00"]
odd
[odd]
[u]
floats
true
True
none
None
false
d
mixed
l|length
s|length
u|length
d|length
i|length
nil|length
missing|length
l|count
range(5)
range(5)|list
range(2, 8, 3)|list
range(5, 0, -2)|list
range(0)|list
range(3)[1]
range(3)[5]
range(10)[2:5]
range(3)|length
range(1, 2, 0)
range("a")
range(200000)
range(5)|last
3 in range(5)
dict(a=1, b=2)
dict([("a", 1), ("b", 2)], c=3)
dict({"a": 1}, a=5)
dict(d)
dict.fromkeys(["a", "b"], 1)
dict(1)
namespace(a=1)
namespace(a=1).a
namespace(a=1).b
namespace({"a": 1}, b=2).b
namespace(_a=1)
namespace(a=1)["a"]
cycler("a", "b").next()
cycler("a", "b").current
cycler()
joiner("|")() ~ "x"
s|upper
s|lower
s|title
s|capitalize
"foo-bar (baz) [qux] don't"|title
"hELLO wORLD"|capitalize
s|trim
pad|trim
"xxhixx"|trim("x")
i|upper
missing|upper
nil|upper
l|upper
sigma|lower
sigma|upper
sigma|title
sigma|capitalize
sigma.title()
sigma.swapcase()
sigma.lower()
s|replace("o", "0")
s|replace("o", "0", 1)
s|replace("", "-")
i|replace(7, 8)
s|replace("World")
s|reverse
l|reverse|list
d|reverse|list
s|list
d|list
i|list
l|first
l|last
empty|first
empty|last
(empty|first) is defined
s|first
u|last
d|first
d|last
missing|first
missing|last
l|join
l|join(", ")
words|join("-")
mixed|join("|")
d|join(",")
rows|join(",", attribute="n")
rows|map(attribute="n")|join(",")
rows|map(attribute="o.k")|list
rows|map(attribute="o.k", default=9)|list
rows|map(attribute="zz", default="dflt")|list
rows|map(attribute="zz")|list
words|map("upper")|list
words|map("replace", "a", "X")|join
l|map("string")|list
l|map("nope")|list
rows|map("length")|list
none|map("upper")|list
missing|map("upper")|list
l|select("odd")|list
l|select("gt", 1)|list
l|reject("equalto", 2)|list
mixed|select|list
mixed|reject|list
mixed|select("string")|list
mixed|select("number")|list
l|select("nope")|list
rows|selectattr("o")|map(attribute="n")|list
rows|selectattr("v", "equalto", 2)|list
rows|selectattr("v", ">", 1)|map(attribute="n")|list
rows|selectattr("o", "defined")|list|length
rows|rejectattr("o", "defined")|list
rows|rejectattr("v", "in", [1, 2])|list
rows|selectattr("o.k", "eq", 3)|list
none|selectattr("x")|list
5|selectattr("x")|list
(rows|selectattr("v"))[0]
(l|select("odd")) is iterable
(l|select("odd")) is sequence
l|select("odd")|length
l|sort
l|sort(reverse=true)
l|sort(true)
words|sort
words|sort(case_sensitive=true)
rows|sort(attribute="v", reverse=true)|map(attribute="n")|list
rows|sort(attribute="g,n")|map(attribute="n")|list
mixed|sort
d|sort
s|sort
rows|sort
l|min
l|max
words|min
words|max
words|max(case_sensitive=true)
rows|max(attribute="v")
empty|min
(empty|max) is defined
l|sum
floats[:1]|sum
rows|sum(attribute="v")
rows|sum("v", 10)
empty|sum
words|sum
words|unique|list
words|unique(true)|list
[1, 1.0, true, "1", 2]|unique|list
rows|unique(attribute="g")|map(attribute="n")|list
[[1]]|unique|list
d|dictsort
d|dictsort(true)
d|dictsort(false, "value")
d|dictsort(reverse=true)
d|dictsort(by="nope")
l|dictsort
d|items|list
missing|items|list
d.items()
d.keys()
d.values()
d.items()|list
d.keys()|list
d.values()|list
d.keys()[0]
d.items()|length
"a" in d.keys()
1 in d.values()
("a", 2) in d.items()
d.get("a")
d.get("zz")
d.get("zz", 5)
d.get("zz", default=5)
d.get()
d.copy()
d.pop("a")
d.update({"x": 1})
d.clear()
d.update is defined
d.setdefault("q", 1)
l.append(4)
l.pop()
l.append
l.sort()
l.copy()
l.index(1)
l.index(9)
l.count(1)
(1, 2, 1).count(1)
(1, 2).index(2)
d.__class__
s.__class__.__mro__
l.__len__()
s.upper()
s.lower()
s.title()
"they're bill's"|title
"they're bill's".title()
s.capitalize()
s.swapcase()
pad.strip()
pad.lstrip()
pad.rstrip()
"xyhixy".strip("xy")
"xyhixy".lstrip("xy")
"xyhixy".rstrip("xy")
"éhié".strip("é")
s.strip(none)
s.strip(1)
s.split()
s.split("o")
s.split("o", 1)
s.split("l", maxsplit=1)
s.split("zzz")
s.split("")
"a  b c ".split()
"a  b c ".split(" ")
" a b c d ".split(none, 2)
" a b c d ".rsplit(none, 2)
"a,b,c".rsplit(",", 1)
"a,b,c".rsplit(",")
"".split()
"".split(",")
"a</think>b</think>c".split("</think>")[-1]
lines.splitlines()
lines.splitlines(true)
"a,b,c".partition(",")
"a,b,c".rpartition(",")
"abc".partition(",")
"abc".rpartition(",")
s.startswith("Hell")
s.startswith(("x", "H"))
s.startswith(["H"])
s.startswith("World", 6)
s.endswith("World")
s.endswith("Hello", 0, 5)
s.endswith(1)
s.removeprefix("Hello ")
s.removesuffix("World")
s.replace("l", "L")
s.replace("l", "L", 2)
s.replace("l")
s.find("o")
s.find("o", 5)
s.find("o", 5, 6)
s.find("zz")
u.find("世")
s.rfind("o")
s.index("o")
s.index("zz")
s.count("o")
s.count("")
s.count("l", 3)
",".join(words)
",".join(l)
",".join("abc")
",".join(d)
"42".isdigit()
"4.2".isdigit()
"²".isdigit()
"abc".isalpha()
"abc1".isalnum()
" \t".isspace()
"Ab".isupper()
"AB".isupper()
"ab".islower()
"Title Case".istitle()
"".isdigit()
"a".center(5) ~ "|"
"ab".center(5, "*")
"a".ljust(3, ".")
"a".rjust(3, ".")
"-5".zfill(4)
"abc".zfill(2)
"{} {}".format(1, "a")
"{0} {1} {0}".format("a", "b")
"{a} {b!r}".format(a=1, b="x")
"{0[a]} {0.b}".format(d)
"{:>5}|{:<5}|{:^5}|".format("a", "b", "c")
"{:05d} {:+d} {:x} {:b} {:,}".format(42, 42, 255, 5, 1234567)
"{:.2f} {:8.3f} {:e} {:g} {:%}".format(3.14159, 2.71828, 12345.678, 0.0001, 0.25)
"{{}} {}".format(1)
"{} {}".format(1)
"{:*^9}".format("mid")
"{:d}".format("a")
"%s and %s" % ("a", 1)
"" % range(3)
"%d%%" % 50
"%s" % "x"
"%s" % l
"%s %s" % "x"
"%(a)s-%(b)d" % d
"%05.1f|%-6s|%6s|%+d|%x|%o|%e|%g" % (3.14159, "ab", "cd", 5, 255, 8, 12345.678, 0.00001)
"%r %s" % ("a", none)
"%c%c" % (65, "b")
"%d" % "a"
"%d" % 3.9
"%.2s|" % "abc"
"%s" % (1, 2)
"%*d" % (5, 42)
"%s, %s!"|format("Hi", "you")
"%(x)s"|format(x=1)
"%s" % u
"3"|int
"3.7"|int
"abc"|int
"abc"|int(5)
"0x1f"|int(base=16)
"1f"|int(0, 16)
" 42 "|int
"1_000"|int
f|int
-2.7|int
t|int
nil|int
l|int
missing|int
"3.5"|float
"abc"|float
"abc"|float(1.5)
"1e3"|float
"inf"|float
"nan"|float
nil|float
i|float
n|abs
-2.5|abs
s|abs
2.567|round
2.5|round
3.5|round
2.567|round(2)
2.567|round(2, "floor")
2.561|round(2, "ceil")
2.5|round(method="ceil")
-0.4|round(method="ceil")
1234|round(-2)
1250|round(-2)
1350.0|round(-2)
i|round
1.005|round(2)
0.5|round
-0.5|round
1e300|round(3)
s|round
2.5|round(1, "nope")
i|string
nil|string
missing|string
l|string ~ "!"
i|default(3)
missing|default(3)
missing|default
missing|d("x")
nil|default("x")
nil|default("x", true)
e|default("x", boolean=true)
d.zz|default("q")
[1, 2, 3, 4, 5]|batch(2)|list
[1, 2, 3, 4, 5]|batch(2, "x")|list
[1, 2, 3, 4, 5]|slice(2)|list
[1, 2, 3, 4, 5]|slice(3, "x")|list
rows|groupby("g")
rows|groupby("g", case_sensitive=true)|length
(rows|groupby("g"))[0].grouper
(rows|groupby("g"))[0].list|length
rows|groupby("o.k", default=0)|map(attribute="grouper")|list
rows|groupby("o.k")
lines|indent
lines|indent(2)
lines|indent(2, true)
lines|indent(2, blank=true)
lines|indent("> ")
lines|indent(first=true, width=1)
i|indent
"long text that is to be cut"|truncate(12)
"long text that is to be cut"|truncate(12, true)
"long text"|truncate(9)
"abcdefghijklmn"|truncate(5, end="!", leeway=0)
"a b c"|wordcount
"foo"|center(9) ~ "|"
html|e
html|escape|escape
html|safe
html|safe|e
html|e + "<"
"<" + (html|e)
html|forceescape
(html|safe)|upper
(html|safe) ~ "<"
[html|safe]
html|e|length
html|urlencode
"a b/ü?&"|urlencode
d|urlencode
d|xmlattr
d|attr("items") is defined
d|attr("a") is defined
s|attr("upper") is defined
d|tojson
mixed|tojson
floats|tojson
u|tojson
u|tojson(ensure_ascii=true)
odd|tojson
odd|tojson(ensure_ascii=true)
nested|tojson(indent=2)
nested|tojson(indent=4)
nested|tojson(indent=0)
nested|tojson(indent="\t")
empty|tojson(indent=2)
{}|tojson(indent=2)
d|tojson(sort_keys=true)
d|tojson(separators=(",", ":"))
d|tojson(indent=2, separators=(",", ":"))
d|tojson(false, 2)
(1, 2)|tojson
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
{(1,): 2}|tojson
missing|tojson
range(3)|tojson
[missing]|tojson
huge|tojson
big|tojson
"</script>"|tojson
nil|tojson
("inf"|float)|tojson
("nan"|float)|tojson
namespace(a=1)|tojson
d.items()|tojson
d.items()|list|tojson
strftime_now("%Y-%m-%d %H:%M:%S")
strftime_now("%d %b %Y, %A %B %j %p %I")
strftime_now("")
strftime_now("plain")
letters|upper
letters|lower
letters.title()
letters.swapcase()
letters|list
letters|select("lower")|join
letters|select("upper")|join
[signs, signs|upper, signs|lower, signs|title, signs.swapcase()]
signs.isdigit()
strftime_now("%f|%z|%Z|%%z|%-d")
(html|safe).replace("a", "<")
(html|safe).partition("'")
("<br>"|safe).join(["<", "b"|safe, 1])
("x"|safe).center(5)
("{}"|safe).format("x")
raise_exception("stop here")
raise_exception("line\nbreak ü")
raise_exception(5)
raise_exception()
i|nope
i is nope
i if true else (i|nope)
i is nope if false else 2
(i)
((i + 1) * 2)
[x for x in l]
i |
i +
i + * 2
(i
i)
[1, 2
{"a" 1}
"abc
i is
i is not
i..a
i[
i if
@
i = 2
not
1 2
a b
i is defined is true
*l
f(**d
i!
$x
l[1,2]
l[1:2,3]
s.split(sep=" ")
s.split(nope=" ")
s|trim(nope=1)
s.upper(1)
d|dictsort(1, 2, 3, 4)
range(*[1, 4])|list
dict(**d)
dict(**{"a": 1}, b=2)
dict(a=1, **{"a": 2})
"abc"|list|reverse|join
-1|abs
-i|abs
2 ** 3|string
1 + 2|string
"a" ~ i|string|length
i > 5 == true
(i > 5) == true
true and false or true
not true or true
1 if not false else 2
[1, 2][0] + {"a": 5}.a
"abc"[1] ~ "abc"[-1]
{"a": {"b": [1, 2, 3]}}.a.b[1:]
s.split(" ")[0].lower().replace("h", "j")
(s ~ "!")|upper
s|lower|replace(" ", "_")|capitalize
words|map("lower")|sort|unique|join(",")
rows|map(attribute="v")|sum
(rows|map(attribute="v")|list)[::-1]
rows|first|attr("n")
d|items|first
d|items|map("first")|list
d|items|map("last")|sum
"é"|upper ~ "É"|lower
"ß"|upper
"x" in {"x": 1}
"x" not in ["y"]
l|list == l
l is sameas l
[1, [2, [3]]] == [1, [2, [3.0]]]
{"a": 1, "b": 2} == {"b": 2, "a": 1}
(1, 2) == [1, 2]
range(3) == range(0, 3)
"10" * 2|int
"%.3f"|format(3.14159)
"%5.1f%%"|format(99.5)
i // 2 * 2 + i % 2 == i
(n // 2) * 2 + n % 2 == n
1.0
100.0
1e5
-0.0
3.14
"a\u0301"
"tab\tq"
"\"\\"
s|string|length + 1
"abc" is sameas "abc"
none|string
[none, true]|string
""|length
"a" if "" else "b"
"a" if [] else "b"
"a" if {} else "b"
"a" if 0.0 else "b"
"a" if missing else "b"
"a" if "0" else "b"
"a" if (l|select("gt", 5)) else "b"
"a" if namespace() else "b"
"a" if range(0) else "b"
"a" if d.items() else "b"
loop
caller
varargs
""".strip("\n").split("\n")
# A line that ends in a backslash goes on.
EXPRESSIONS = "\n".join(EXPRESSIONS).replace("\\\n", "\\\r").split("\n")
EXPRESSIONS = [line.replace("\r", "\n") for line in EXPRESSIONS]

# name -> (template, contexts); an empty list of contexts is one empty context.
TEMPLATES: dict[str, tuple[str, list[dict[str, Any]]]] = {}


def template(name: str, text: str, *contexts: dict[str, Any]) -> None:
    assert name not in TEMPLATES
    TEMPLATES[name] = (text, list(contexts) or [{}])


M = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <there>"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "Bye"},
]

template("text only", "plain text\nwith lines\n")
template("two trailing newlines", "a\n\n")
template("carriage returns", "a\r\nb\rc{{ 'x\r\ny' }}\r\n")
template("empty", "")
template("only newline", "\n")
template("trim_blocks", "{% if true %}\na\n{% endif %}\nb\n{% if true +%}\nc{% endif %}\n\nd")
template(
    "lstrip_blocks", "  {% if true %}x{% endif %}\n\t {% if true %}\n  y\n  {% endif %}\nz {% if true %}w{% endif %}"
)
template("lstrip off", "  {%+ if true %}x{%+ endif %}\n  {%+ set a = 1 +%}\n.")
template("lstrip leaves expressions", "  {{ 1 }}\n  {{ 2 }}\n\t{{- 3 }}\n  {{ 4 -}}\n  5")
template("strip", "a  {%- if true -%}  b  {%- endif -%}  c\n\n{{- 'd' -}}\n\n e {#- note -#} f")
template("comments", "a{# x #}\nb\n  {# y\nz #}\nc {#- s -#} d{# unbalanced {{ #}e\n{# t +#}\nf")
template("comment with stars", "{#- - #}x{# -#}  y{#-#}z")
template("comment at line start", "  {# c #} x\n  {#+ c #} y")
template("raw", "{% raw %}{{ x }} {% if %} {# c #}{% endraw %}\nb {% raw -%}\n  q  {%- endraw -%}  r")
template("raw keeps newline", "{% raw %}\nline\n  {% endraw %}\nafter")
template("unicode space is stripped", "a\u00a0\u2003{%- if 1 -%}\u3000b{% endif %}")
template("braces in text", "{ {x} }} %} #} {% raw %}{{{% endraw %} {{ '}}' }} {{ '%}' }}")
template("nested braces", "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a':{}} }}")
template(
    "for",
    "{% for m in messages %}{{ m.role }}:{{ m['content'] }}|{% endfor %}",
    {"messages": M},
    {"messages": []},
    {},
    {"messages": None},
    {"messages": 5},
    {"messages": "abc"},
    {"messages": {"a": 1, "b": 2}},
)
template(
    "loop variables",
    "{% for x in l %}{{ loop.index }},{{ loop.index0 }},{{ loop.revindex }},{{ loop.revindex0 }},{{ loop.first }},"
    "{{ loop.last }},{{ loop.length }},{{ loop.previtem }},{{ loop.nextitem }},{{ loop.depth }},{{ loop.depth0 }},"
    "{{ loop.cycle('a', 'b') }},{{ loop.changed(x // 2) }}\n{% endfor %}",
    {"l": [1, 2, 3, 4]},
    {"l": [7]},
    {"l": []},
)
template("loop itself", "{% for x in [1, 2] %}{{ loop }}{{ loop is defined }}{{ loop.nope is defined }}{% endfor %}")
template(
    "previtem undefined",
    "{% for x in [1, 2] %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
)
template("previtem use", "{% for x in [{'a': 1}] %}{{ loop.previtem.a }}{% endfor %}")
template("for else", "{% for x in l %}{{ x }}{% else %}none{% endfor %}", {"l": []}, {"l": [1]}, {})
template(
    "for if",
    "{% for x in range(10) if x is odd %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% else %}-{% endfor %}",
)
template("for if none", "{% for x in range(10) if x > 100 %}{{ x }}{% else %}none{% endfor %}")
template(
    "for if sees the body's changes",
    "{% set ns = namespace(last='') %}{% for m in messages if m.role != ns.last %}{% set ns.last = m.role %}"
    "{{ m.role }} {% endfor %}",
    {"messages": [{"role": r} for r in "aabbab"]},
)
template(
    "for if with loop.last looks ahead",
    "{% set ns = namespace(last='') %}{% for m in messages if m.role != ns.last %}{% set ns.last = m.role %}"
    "{{ m.role }}{{ loop.last }} {% endfor %}",
    {"messages": [{"role": r} for r in "aabbab"]},
)
template("for if uses outer names", "{% set k = 2 %}{% for x in [1, 2, 3] if x != k %}{{ x }}{% endfor %}")
template(
    "for unpacks",
    "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}-{{ b }} {% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    {"d": {"x": 1, "y": 2}},
)
template("for nested unpack", "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}")
template("for unpack too few", "{% for a, b in [(1,)] %}{% endfor %}")
template("for unpack too many", "{% for a, b in [(1, 2, 3)] %}{% endfor %}")
template("for tuple without brackets", "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}")
template("for over string", "{% for c in 'aé😀' %}[{{ c }}]{% endfor %}")
template("for reversed", "{% for m in messages[::-1] %}{{ loop.index0 }}{{ m.role }}{% endfor %}", {"messages": M})
template(
    "break and continue",
    "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}.",
)
template(
    "break in nested loop",
    "{% for x in [1, 2] %}{% for y in [1, 2, 3] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
)
template(
    "continue and else",
    "{% for x in [1] %}{% continue %}{% else %}else{% endfor %}{% for x in [1] %}{% break %}{% else %}else{% endfor %}",
)
template(
    "break in else", "{% for x in [1, 2] %}{{ x }}{% for y in [] %}{% else %}{% break %}{% endfor %}never{% endfor %}"
)
template("break outside", "{% break %}")
template("break in macro", "{% for x in [1] %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}")
template("break in set block", "{% for x in [1, 2] %}{% set y %}a{% break %}{% endset %}{{ y }}{% endfor %}.")
template(
    "recursive loop",
    "{% for n in t recursive %}{{ n.v }}{% if n.c %}({{ loop(n.c) }}){% endif %}{{ loop.depth }}{{ ',' if not loop.last }}{% endfor %}",
    {"t": [{"v": 1, "c": [{"v": 2}, {"v": 3, "c": [{"v": 4}]}]}, {"v": 5}]},
)
template("loop called without recursive", "{% for n in [1] %}{{ loop([2]) }}{% endfor %}")
template(
    "nested loops shadow loop",
    "{% for a in [1, 2] %}{{ loop.index }}[{% for b in 'xy' %}{{ loop.index }}{{ b }}{% endfor %}]{{ loop.index }} {% endfor %}",
)
template(
    "outer loop kept in a name",
    "{% for a in [1, 2] %}{% set outer = loop %}{% for b in 'xy' %}{{ outer.index }}.{{ loop.index }} {% endfor %}{% endfor %}",
)
template("assign loop", "{% for a in [1] %}{% set loop = 2 %}{% endfor %}")
template(
    "if chain",
    "{% if x == 1 %}one{% elif x == 2 %}two{% elif x == 3 %}three{% else %}many{% endif %}",
    {"x": 1},
    {"x": 2},
    {"x": 3},
    {"x": 4},
    {},
)
template(
    "if in if",
    "{% if a %}{% if b %}ab{% else %}a{% endif %}{% else %}{% if b %}b{% endif %}{% endif %}",
    {"a": 1, "b": 1},
    {"a": 1},
    {"b": 1},
    {},
)
template("set", "{% set a = 1 %}{% set b = a + 1 %}{{ a }}{{ b }}{% set a = 'x' %}{{ a }}")
template(
    "set tuple", "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{% set e = 1, 2 %}{{ e }}"
)
template("set wrong", "{% set a.b.c = 1 %}")
template("set constant", "{% set true = 1 %}")
template("set call", "{% set f() = 1 %}")
template(
    "set block",
    "{% set x %}a{{ 1 + 1 }}b{% endset %}[{{ x }}]{% set y | upper | replace('A', 'Q') %} a {% endset %}[{{ y }}]",
)
template("set block scope", "{% set v = 1 %}{% set x %}{% set v = 2 %}{{ v }}{% endset %}{{ x }}{{ v }}")
template("loop scope", "{% set x = 0 %}{% for i in [1, 2] %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}")
template(
    "if scope",
    "{% set x = 0 %}{% if true %}{% set x = 1 %}{% endif %}{{ x }}{% if false %}{% set y = 1 %}{% endif %}{{ y }}",
    {},
    {"y": "from context"},
)
template(
    "if in loop scope",
    "{% set x = 0 %}{% for i in [1, 2, 3] %}{% if i == 2 %}{% set x = i %}{% endif %}{{ x }}{% endfor %}{{ x }}",
)
template(
    "set hides the variable for inner scopes",
    "{% for i in [1] %}{{ x }}{% endfor %}{% set x = 2 %}{{ x }}",
    {"x": "context"},
)
template("read before set", "{{ x }}{% set x = 2 %}{{ x }}", {"x": "context"}, {})
template(
    "macro reads later set",
    "{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% set x = 2 %}{{ f() }}",
    {"x": "context"},
    {},
)
template(
    "set in branch falls back",
    "{% if a %}{% set tools = none %}{% endif %}{{ tools }}",
    {"a": 1, "tools": 5},
    {"tools": 5},
)
template(
    "date default",
    "{% if not date_string is defined %}{% set date_string = '26 Jul 2024' %}{% endif %}{{ date_string }}",
    {},
    {"date_string": "today"},
)
template("loop variable does not leak", "{% for x in [1, 2] %}{% endfor %}{{ x }}", {}, {"x": "kept"})
template(
    "namespace",
    "{% set ns = namespace(a=0, b='') %}{% for i in [1, 2, 3] %}{% set ns.a = ns.a + i %}{% set ns.b = ns.b ~ i %}{% set ns.c = i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{{ ns.d is defined }}{{ ns }}",
)
template("namespace tuple", "{% set ns = namespace() %}{% set ns.a, x = 1, 2 %}{{ ns.a }}{{ x }}")
template("namespace refuses", "{% set ns = namespace() %}{% set ns._a = 1 %}")
template("attribute of a dict", "{% set d = {} %}{% set d.a = 1 %}")
template(
    "macro",
    "{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(1, c='y') }}{{ f(b=5, a=6) }}{{ f() }}",
)
template("macro too many", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}")
template("macro unknown keyword", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=1) }}")
template("macro twice", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }}")
template(
    "macro varargs", "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}{{ f() }}"
)
template("macro default of earlier", "{% macro f(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}")
template(
    "macro default evaluated each call",
    "{% set n = namespace(v=1) %}{% macro f(a=n.v) %}{{ a }}{% endmacro %}{{ f() }}{% set n.v = 2 %}{{ f() }}",
)
template("macro recursion", "{% macro f(n) %}{{ n }}{% if n > 0 %},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}")
template(
    "macro sees outer", "{% set x = 1 %}{% macro f() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ f() }}{{ x }}"
)
template(
    "macro attributes",
    "{% macro f(a, b=1) %}{{ caller() }}{% endmacro %}{{ f.name }}{{ f.arguments }}{{ f.catch_kwargs }}{{ f.caller }}{{ f }}{{ f.nope is defined }}",
)
template(
    "macro result is text",
    "{% macro f() %}  x {% endmacro %}[{{ f() | trim }}]{{ f() is string }}{{ f() ~ 1 }}{{ f() | length }}",
)
template(
    "macro in macro",
    "{% macro a(x) %}{% macro b(y) %}{{ x }}{{ y }}{% endmacro %}{{ b(1) }}{{ b(2) }}{% endmacro %}{{ a('q') }}",
)
template("macro in loop", "{% for i in [1, 2] %}{% macro f() %}<{{ i }}>{% endmacro %}{{ f() }}{% endfor %}")
template("macro before definition", "{{ f() }}{% macro f() %}x{% endmacro %}")
template(
    "macro in a namespace",
    "{% set ns = namespace() %}{% for i in [1] %}{% macro f(x) %}{{ x }}!{% endmacro %}{% set ns.f = f %}{% endfor %}{{ ns.f('a') }}",
)
template(
    "macro writes json",
    "{% macro dump(v, depth=0) %}{% if v is mapping %}{ {%- for k, w in v.items() %} {{ k }}: {{ dump(w, depth + 1) }}{{ ',' if not loop.last }}{% endfor %} }{% elif v is string %}\"{{ v }}\"{% elif v is iterable %}[{% for w in v %}{{ dump(w, depth + 1) }}{{ ', ' if not loop.last }}{% endfor %}]{% else %}{{ v | tojson }}{% endif %}{% endmacro %}{{ dump(v) }}",
    {"v": {"a": [1, {"b": None}, "x"], "c": {}, "d": True}},
)
template(
    "call",
    "{% macro box(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call box('a') %}body{% endcall %}{% call box(t='b') %}{{ 1 + 1 }}{% endcall %}",
)
template(
    "call with arguments",
    "{% macro each(l) %}{% for x in l %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i) each([5, 6]) %}{{ i }}={{ x }};{% endcall %}",
)
template(
    "call scope",
    "{% set v = 1 %}{% macro m() %}{% set v = 2 %}{{ caller() }}{% endmacro %}{% call m() %}{{ v }}{% endcall %}",
)
template("caller missing", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}")
template(
    "caller tested",
    "{% macro m() %}{{ caller is defined }}{% if caller %}{{ caller() }}{% endif %}{% endmacro %}{{ m() }}{% call m() %}x{% endcall %}",
)
template("caller without macro use", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}")
template(
    "filter block",
    "{% filter upper %}abc {{ 'def' }}{% endfilter %}{% filter trim | replace('b', 'X') %}  abc {% endfilter %}",
)
template("filter block scope", "{% set a = 'x' %}{% filter upper %}{% set a = 'y' %}{{ a }}{% endfilter %}{{ a }}")
template("with", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% set a = 5 %}{{ a }}{% endwith %}{{ a }}", {"a": "outer"})
template("with sees outer values", "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}")
template(
    "generation",
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% set x = 1 %}{% endgeneration %}{{ x }}{% else %}{{ m.role }}{% endif %}{% endfor %}",
    {"messages": M},
)
template("print statement", "{% print 1, 'a' %}{% print x %}")
template("colon after tag", "{% if true: %}a{% endif %}{% for x in [1]: %}{{ x }}{% endfor %}")
template(
    "raise",
    "{% for m in messages %}{% if m.role == 'user' %}{{ raise_exception('no ' ~ m.role) }}{% endif %}{% endfor %}",
    {"messages": M},
    {"messages": M[:1]},
)
template(
    "enable_thinking",
    "{% if enable_thinking is defined and enable_thinking is false %}off{% elif enable_thinking is undefined %}unset{% else %}on{% endif %}",
    {},
    {"enable_thinking": False},
    {"enable_thinking": True},
    {"enable_thinking": "false"},
    {"enable_thinking": None},
)
template(
    "reasoning_content",
    "{% for m in messages %}{% if m.reasoning_content is defined and m.reasoning_content is not none %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% endfor %}",
    {
        "messages": [
            {"content": "a", "reasoning_content": "thoughts"},
            {"content": "b"},
            {"content": "c", "reasoning_content": None},
        ]
    },
)
template(
    "tool list",
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}\n{{ tool.function | tojson(indent=4) }}\n{% endfor %}{% else %}none{% endif %}",
    {
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "description": "Größe <b>",
                    "parameters": {
                        "type": "object",
                        "properties": {"z": {"type": "number", "minimum": 0.5}, "a": {"type": "integer"}},
                        "required": ["z"],
                    },
                },
            }
        ]
    },
    {"tools": None},
    {},
)
template(
    "content parts",
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% else %}<{{ part['type'] }}>{% endif %}{% endfor %}{% endif %}{% endfor %}",
    {"messages": [{"content": "a"}, {"content": [{"type": "text", "text": "b"}, {"type": "image"}]}]},
)
template(
    "alternation check",
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{{ m.role }}{% endfor %}",
    {"messages": M[1:]},
    {"messages": M},
)
template("filter unknown", "{{ 1 | nope }}")
template("filter unknown in if", "{% if false %}{{ 1 | nope }}{% endif %}ok")
template("filter unknown in if used", "{% if true %}{{ 1 | nope }}{% endif %}")
template("filter unknown in loop in if", "{% if false %}{% for x in [] %}{{ 1 | nope }}{% endfor %}{% endif %}ok")
template("test unknown", "{{ 1 is nope }}")
template("tag unknown", "{% nope %}")
template("tag unclosed", "{% if true %}x")
template("tag closed wrongly", "{% if true %}x{% endfor %}")
template("tag open", "{% if true")
template("expression open", "a\nb {{ 1")
template("comment open", "a {# b")
template("comment open at the end", "a\n{#")
template("comment open at the end with sign", "a\n{#-")
template("raw open at the end", "a{% raw %}")
template("raw open", "{% raw %}x")
template("endif alone", "{% endif %}")
template("else alone", "{% else %}")
template("elif after else", "{% if 1 %}{% else %}{% elif 2 %}{% endif %}")
template("empty expression", "{{ }}")
template("empty tag", "{% %}")
template("two expressions", "{{ 1 2 }}")
template("set without value", "{% set x = %}")
template("for without in", "{% for x of y %}{% endfor %}")
template("for target", "{% for x.y in [1] %}{% endfor %}")
template("macro without brackets", "{% macro f %}{% endmacro %}")
template("macro default order", "{% macro f(a=1, b) %}{% endmacro %}")
template("keyword twice", "{{ dict(a=1, a=2) }}")
template("positional after keyword", "{{ dict(a=1, 2) }}")
template("call of no call", "{% call 5 %}{% endcall %}")
template("generator walked twice", "{% set g = [1, 2, 3] | select('odd') %}{{ g | list }}{{ g | list }}")
template("generator first then rest", "{% set g = [1, 2, 3] | map('string') %}{{ g | first }}{{ g | list }}")
template("deep undefined", "{{ a.b.c }}", {"a": {}}, {"a": {"b": {}}}, {})
template(
    "joiner and cycler",
    "{% set sep = joiner(', ') %}{% set c = cycler('a', 'b') %}{% for x in [1, 2, 3] %}{{ sep() }}{{ c.next() }}{{ x }}{% endfor %}{{ c.current }}{{ c.reset() }}{{ c.next() }}",
)
template(
    "dict rebuilt",
    "{% set ns = namespace(d={}) %}{% for k in ['x', 'y'] %}{% set ns.d = dict(ns.d, **{k: loop.index}) %}{% endfor %}{{ ns.d }}",
)
template(
    "list grows",
    "{% set ns = namespace(l=[]) %}{% for k in ['x', 'y'] %}{% set ns.l = ns.l + [k] %}{% endfor %}{{ ns.l }}",
)
template(
    "text grows",
    "{% set ns = namespace(t='') %}{% for k in range(50) %}{% set ns.t = ns.t + k | string + ',' %}{% set u = ns.t + '!' %}{% endfor %}{{ ns.t }}",
)
template("mutation refused", "{% set l = [] %}{{ l.append(1) }}")
template("mutation refused by call only", "{% set l = [] %}{{ l.append is defined }}{{ l.append }}")
template(
    "big dict",
    "{{ d.k3 }}{{ d['k19'] }}{{ d.k20 is defined }}{{ 'k7' in d }}{{ dict(d, k3='new').k3 }}{{ dict(d, new=1) | list | last }}",
    {"d": {f"k{i}": i for i in range(20)}},
)
template(
    "chat ml",
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    {"messages": M, "add_generation_prompt": True},
    {"messages": M},
)
template(
    "indented blocks",
    "{% for x in [1, 2] %}\n    {% if x == 1 %}\n        one\n    {% else %}\n        other\n    {% endif %}\n{% endfor %}\nend\n",
)
template(
    "indented with strip",
    "{%- for x in [1, 2] %}\n    {%- if x == 1 %}\n        {{- 'one' }}\n    {%- else %}\n        {{- 'other' }}\n    {%- endif %}\n{%- endfor %}\n",
)
template("inline if in text", "a {% if true %}b{% endif %} c {% if false %}d{% endif %} e")
