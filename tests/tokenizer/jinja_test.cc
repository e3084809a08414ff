// What the template engine adds to Jinja: origins, places in errors, limits.
#include <gtest/gtest.h>

#include "jinja_support.h"
#include "tokenizer/jinja/template.h"
#include "tokenizer/jinja/text.h"

namespace markbase::tokenizer::jinja {
namespace {

Result<Text> render(const std::string& source, const Template::Variables& variables = {}) {
  MB_ASSIGN(const Template parsed, Template::parse(source));
  return parsed.render(variables);
}

// The template's own letters as they are, all others as '.'.
std::string own(const std::string& source) {
  Arena arena;
  const Value dict = value_of(base::Json::parse(R"({"k":"v","<b>":1})"), arena);
  const auto text = render(source, {{"m", arena.string("<a> Xy ", Origin::kMessage)},
                                    {"d", dict},
                                    {"bos", arena.string("<s>", Origin::kTemplate)}});
  if (!text.ok()) return text.error().message;
  std::string shown;
  size_t at = 0;
  for (const Run& run : text->runs) {
    for (; at < run.end; ++at) shown += run.origin == Origin::kTemplate ? text->bytes[at] : '.';
  }
  EXPECT_EQ(shown.size(), text->bytes.size());
  return shown;
}

TEST(JinjaOrigin, IsKeptByWhateverATextGoesThrough) {
  EXPECT_EQ(own("<a>{{ m }}<b>"), "<a>.......<b>");
  EXPECT_EQ(own("{{ '<' + m + '>' }}"), "<.......>");
  EXPECT_EQ(own("{{ '<' ~ m ~ '>' }}"), "<.......>");
  EXPECT_EQ(own("{{ m | trim }}|{{ (' x ' + m) | trim }}"), "......|x ......");
  EXPECT_EQ(own("{{ (m + 'ab') | upper }}"), ".......AB");
  EXPECT_EQ(own("{{ (m + 'ab')[1:-1] }}{{ ('ab' + m)[::-1] }}"), "......a.......ba");
  EXPECT_EQ(own("{{ m.replace('<a>', '<|>') }}"), "<|>....");
  EXPECT_EQ(own("{{ ('<a>' + m) | replace('a', m) }}"), "<.......>.............");
  EXPECT_EQ(own("{{ m.split('<') | join('<') }}"), "<......");
  EXPECT_EQ(own("{{ [m, '<x>'] | join('|') }}"), ".......|<x>");
  EXPECT_EQ(own("{{ '|'.join([m, m]) }}"), ".......|.......");
  EXPECT_EQ(own("{% set x %}[{{ m }}]{% endset %}{{ x }}{{ x[0] }}"), "[.......][");
  EXPECT_EQ(own("{% macro f(a) %}({{ a }}){% endmacro %}{{ f(m) + f('b') }}"), "(.......)(b)");
  EXPECT_EQ(own("{% filter upper %}a{{ m }}b{% endfilter %}"), "A.......B");
  EXPECT_EQ(own("{% for c in 'ab' + m.strip() %}{{ c }}{% endfor %}"), "ab......");
  EXPECT_EQ(own("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}"), ".=.;...=.;");
  EXPECT_EQ(own("{{ {'k': m} }}"), "..k.............");
  EXPECT_EQ(own("{{ [m, '<x>'] | tojson }}"), ".............<x>..");
  EXPECT_EQ(own("{{ bos }}{{ 1 }}{{ none }}{{ true }}"), "<s>.........");
  EXPECT_EQ(own("{{ 'a\n' | indent(2, true) }}{{ m | title }}"), "  a\n.......");
  EXPECT_EQ(own("{{ m * 2 }}{{ '<' * 3 }}"), "..............<<<");
  EXPECT_EQ(own("{{ (m ~ '<x>') | string | list | last }}"), ">");
}

TEST(JinjaErrors, SayWhereAndWhat) {
  const auto message = [](const std::string& source) {
    const auto text = render(source);
    return text.ok() ? "no error" : text.error().message;
  };
  EXPECT_EQ(message("a\n  {{ x.y }}"), "line 2, column 7: 'x' is undefined");
  EXPECT_EQ(message("äö {{ {}.a.b }}"), "line 1, column 11: there is no 'a'");
  EXPECT_EQ(message("{{ raise_exception('No: ' ~ 1) }}"),
            "line 1, column 19: the template says: No: 1");
  EXPECT_EQ(message("{% if x %}"), "line 1, column 11: expected {% endif %}, got the end");
  EXPECT_EQ(message("\n\n{{ 1 + }}"), "line 3, column 8: expected an expression, got '}}'");
  EXPECT_EQ(message("{% include 'a' %}").substr(0, 39), "line 1, column 4: expected a statement ");
  EXPECT_EQ(message("{{ 'a' | e }}"), "line 1, column 10: there is no filter 'e'");
  EXPECT_EQ(message("{{ 'a' + 1 }}"), "line 1, column 8: '+' does not take a str and a int");
  EXPECT_EQ(message("{{ 'a'.format() }}"),
            "line 1, column 14: the method 'format' of a str is not supported");
  EXPECT_EQ(render("{{ raise_exception('x') }}").error().code, ErrorCode::kUsage);
  EXPECT_EQ(render("{{ ").error().code, ErrorCode::kBadInput);
  EXPECT_EQ(render("a\xff").error().code, ErrorCode::kBadInput);
}

TEST(JinjaLimits, AHostileTemplateEndsWithAnError) {
  const std::string forever = "{% for a in range(100000) %}";
  const std::string ends = "{% endfor %}";
  std::string deep_list =
      "{% set ns = namespace(x=[]) %}" + forever + "{% set ns.x = [ns.x] %}" + ends;
  const std::string sources[] = {
      forever + forever + forever + "x" + ends + ends + ends,
      forever + forever + ends + ends,
      "{{ 'x' * 1000000000 }}",
      "{{ [0] * 1000000000 }}",
      "{{ ('x' * 9223372036854775807) | length }}",
      "{% set ns = namespace(s='x') %}" + forever + "{% set ns.s = ns.s + ns.s %}" + ends,
      "{% set ns = namespace(s='x') %}" + forever + "{% set ns.s = ns.s ~ ns.s %}" + ends,
      "{% set ns = namespace(s='x') %}" + forever + "{% set ns.s = ns.s.replace('x', 'xx') %}" +
          ends,
      "{% set ns = namespace(s='x') %}" + forever + "{% set ns.s = [ns.s, ns.s] | string %}" + ends,
      "{% set ns = namespace(s=[1]) %}" + forever + "{% set ns.s = [ns.s, ns.s] %}" + ends +
          "{{ ns.s }}",
      "{% set ns = namespace(s=[1]) %}{% for a in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% "
      "endfor %}{{ ns.s == ns.s[0] }}{{ ns.s | tojson }}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(a) %}{{ f([a]) }}{% endmacro %}{{ f(1) }}",
      "{% macro f() %}{{ caller() }}{% call f() %}{{ f() }}{% endcall %}{% endmacro %}{% call f() "
      "%}{% endcall %}",
      deep_list + "{{ ns.x }}",
      deep_list + "{{ ns.x | tojson }}",
      "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}",
      "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x == [ns.x] }}{{ ns.x | tojson }}",
      "{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}",
      "{{ " + std::string(100000, '[') + " }}",
      "{{ " + std::string(100000, '-') + "1 }}",
      "{% if 1 %}" + std::string(0, ' ') +
          [] {
            std::string nested;
            for (int i = 0; i < 1000; ++i) nested += "{% if 1 %}";
            return nested;
          }(),
      "{{ 1" +
          [] {
            std::string sum;
            for (int i = 0; i < 100000; ++i) sum += "+1";
            return sum;
          }() +
          " }}",
      "{{ range(1000000) }}",
      "{{ range(-9223372036854775807, 9223372036854775807) }}",
      "{{ 2 ** 64 }}",
      "{{ 'a' | indent(1000000000) }}",
      "{{ {} | batch(9223372036854775807, 1) | list }}{{ [1] | batch(9223372036854775807, 1) | "
      "list }}",
      "{{ ('a' * 100000).split('') }}",
      forever + "{{ ('ab' * 100000).rfind('b' * 50000) }}" + ends,
      forever + "{{ ('a' * 1000000).find('a' * 500000 ~ 'b') }}" + ends,
      "{% set big = 'a' * 1000000 %}" + forever + forever + "{{ big in 'a' }}" + ends + ends,
      "{{ ('a' * 3000000) | list | length }}{{ ('a' * 30000000) | list | length }}",
  };
  for (const std::string& source : sources) {
    const auto text = render(source);
    EXPECT_FALSE(text.ok()) << source.substr(0, 200);
  }
}

std::string times(int count, const std::string& text) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}
// "a0,a1,..." with `more` after each.
std::string names(int count, const std::string& before, const std::string& after) {
  std::string out;
  for (int i = 0; i < count; ++i) out += before + std::to_string(i) + after;
  out.pop_back();
  return out;
}

// What goes with the size of a thing is paid by its size: each of these took minutes, gigabytes or
// the whole stack while a step paid for any number of names, keys, arguments or letters.
TEST(JinjaLimits, HoldForWhatGoesWithASize) {
  const std::string forever = "{% for a in range(100000) %}{% for b in range(100000) %}";
  const std::string ends = "{% endfor %}{% endfor %}";
  const std::string list = "{% set l = range(100000) | list %}";
  const std::string long_texts = "{% set s = 'a' * 40000000 %}{% set t = 'a' * 40000000 %}";
  const std::string sources[] = {
      "{% for x in [1] %}{% if a" + times(100000, " and a") + " %}{{ x.y.z }}{% endif %}" +
          forever + ends + "{% endfor %}",
      "{% for x in [1] %}{% if a" + times(400000, ".b") + " %}{% endif %}{% endfor %}",
      "{% filter upper" + times(150000, "|upper") + " %}{% endfilter %}",
      "{% set x" + times(150000, "|upper") + " %}{% endset %}",
      "{{ dict(range(100000) | batch(2)) | length }}",
      "{% for i in [1] %}{% set " + names(20000, "v", ",") + " = range(20000) | list %}" + forever +
          "{{ none_such }}" + ends + "{% endfor %}",
      "{% set ns = namespace() %}" + names(10000, "{% set ns.v", " = 0 %} ") + forever +
          "{{ ns.none_such }}" + ends,
      "{% macro m(" + names(10000, "p", ",") + ") %}{% endmacro %}" + forever + "{{ m() }}" + ends,
      "{% macro m(" + names(1000, "p", "={},") + ") %}{% endmacro %}" + forever + "{{ m() }}" +
          ends,
      list + "{% macro m() %}{{ varargs[0] }}{% endmacro %}" + forever + "{{ m(*l) }}" + ends,
      list + "{% for z in [1] %}{% set outer = loop %}" + forever + "{{ outer.cycle(*l) }}" + ends +
          "{% endfor %}",
      "{% set d = dict(range(20000) | map('string') | batch(2)) %}{% macro m() %}{{ kwargs | "
      "length "
      "}}{% endmacro %}" +
          forever + "{{ m(**d) }}" + ends,
      "{% for " + names(10000, "v", ",") + " in [range(10000) | list] * 100000 %}{% endfor %}",
      long_texts + forever + "{{ s == t }}" + ends,
      long_texts + forever + "{{ s < t }}" + ends,
      long_texts + forever + "{{ s.startswith(t) }}" + ends,
      "{% set s = 'a' * 10000000 %}{% set d = {" + names(20, "'k", "': 1,") + "} %}" + forever +
          "{{ d[s] }}{{ d.get(s) }}{{ s in d }}" + ends,
      "{% set t = ('a',) * 100000 %}" + forever + "{{ 'b'.startswith(t) }}" + ends,
      "{{ (('a' ~ 1) * 30000000) | length }}",
      "{% set s = ('a' ~ 1) * 200000 %}{{ ([s] * 500) | join | length }}",
      forever + "{% set x = [" + times(1000, "{},") + "] %}" + ends,
      forever + "{% set x = [" + times(1000, "''[:],") + "] %}" + ends,
      forever + "{{ 1e308 | round(20) }}{{ 1e308 | int }}" + ends,
      forever + "{{ strftime_now('%c %A %B') }}" + ends,
      times(2 << 20, "x"),
  };
  for (const std::string& source : sources) {
    const auto text = render(source);
    ASSERT_FALSE(text.ok()) << source.substr(0, 200);
    EXPECT_EQ(text.error().code, ErrorCode::kBadInput) << text.error().message;
  }
}

// A list of `count` short texts, as a conversation has messages.
Value texts(size_t count, Arena& arena) {
  std::vector<Value> items(count, arena.string("hello", Origin::kMessage));
  return arena.list(std::move(items));
}

// Steps beyond those that any template may take come with the values that it is given.
TEST(JinjaLimits, GrowWithWhatIsGiven) {
  const std::string source =
      "{% for m in messages %}{% for i in range(25) %}{{ '' }}{% endfor %}{% endfor %}";
  Arena arena;
  EXPECT_FALSE(render(source, {{"messages", arena.range({0, 200000, 1})}}).ok());
  EXPECT_TRUE(render(source, {{"messages", texts(200000, arena)}}).ok());
  const std::string forever = "{% for a in messages %}{% for a in messages %}{% if a %}{% endif %}";
  const auto text =
      render(forever + "{% endfor %}{% endfor %}", {{"messages", texts(20000, arena)}});
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::kBadInput);
}

// For all messages the templates look through those before and after, and do nothing once they have
// found what they look for: that must not take a step for each.
TEST(JinjaLimits, ALoopThatHasFoundWhatItLooksForEnds) {
  const std::string looks =
      "{% for m in messages %}{% set ns = namespace(found=false, n=0) %}"
      "{% for j in range(loop.index0, -1, -1) %}{% if not ns.found %}{% set ns.n = j %}"
      "{% if messages[j] == 'hello' %}{% set ns.found = true %}{% endif %}{% endif %}{% endfor %}"
      "{% for j in range(loop.index0, messages | length) %}{% if ns.found == 'x' %}"
      "{% elif not ns.found %}{% else %}{% set ns.found = 'x' %}{% endif %}{% endfor %}"
      "{% if loop.last %}{{ ns.n }}{{ ns.found }}{% endif %}{% endfor %}";
  Arena arena;
  const auto text = render(looks, {{"messages", texts(50000, arena)}});
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(text->bytes, "49999x");
}

// What looks the same but is not: the condition sees the round, or a branch writes.
TEST(JinjaLoops, GoOnWhereALaterRoundMayDoSomething) {
  const auto text = [](const std::string& source) {
    const auto made = render("{% set ns = namespace(x=0, l=none) %}" + source);
    return made.ok() ? made->bytes : made.error().message;
  };
  EXPECT_EQ(text("{% for i in range(5) %}{% if i == 3 %}{{ i }}{% endif %}{% endfor %}"), "3");
  EXPECT_EQ(text("{% for i in range(5) %}{% if loop.last %}{{ i }}{% endif %}{% endfor %}"), "4");
  EXPECT_EQ(text("{% for i in [0, 1] %}{% if not ns.x %}{% else %}{{ i }}{% endif %}"
                 "{% set ns.x = 1 %}{% endfor %}"),
            "1");
  EXPECT_EQ(text("{% for i in range(4) %}{% if ns.x %}{% elif i == 2 %}{{ i }}{% set ns.x = 1 %}"
                 "{% endif %}{% endfor %}{{ ns.x }}"),
            "21");
  EXPECT_EQ(text("{% for i in range(4) %}{% if not x %}{{ i }}{% set x = true %}{% endif %}"
                 "{% endfor %}{{ x }}"),
            "0123");
  // A loop that was kept says where it ended.
  EXPECT_EQ(text("{% for i in range(4) %}{% if ns.l is none %}{% set ns.l = loop %}{% endif %}"
                 "{% endfor %}{{ ns.l.index }}"),
            "4");
  EXPECT_EQ(text("{% for i in range(9) %}{% if ns.l == none %}{% set ns.l = loop %}{% endif %}"
                 "{% endfor %}{{ ns.l.index }}"),
            "9");
  EXPECT_EQ(text("{% for i in range(6, 0, -2) %}{{ loop.previtem }},{{ i }},{{ loop.nextitem }};"
                 "{{ loop.length }}{{ loop.revindex0 }}{% endfor %}"),
            ",6,4;326,4,2;314,2,;30");
}

// Against the plain search, on texts that repeat themselves.
TEST(JinjaText, FinderFindsWhatAPlainSearchFinds) {
  uint32_t state = 1;
  const auto letters = [&](size_t n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += "ab"[(state = state * 1664525 + 1013904223) >> 31];
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    const std::string text = letters(round % 40);
    const std::string needle = letters(round % 7);
    const Finder finder(needle);
    for (size_t from = 0; from <= text.size() + 1; ++from)
      ASSERT_EQ(finder.next(text, from), text.find(needle, from)) << text << ' ' << needle;
    ASSERT_EQ(find_bytes(text, needle), text.find(needle));
  }
}

TEST(JinjaTemplate, MayBeRenderedTwice) {
  const auto parsed =
      Template::parse("{% set ns = namespace(a=0) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ x }}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->render({{"x", Value::of(int64_t{1})}})->bytes, "11");
  EXPECT_EQ(parsed->render({})->bytes, "1");
  EXPECT_TRUE(parsed->has_variable("x"));
  EXPECT_FALSE(parsed->has_variable("a"));
  EXPECT_TRUE(parsed->mentions("ns"));
}

}  // namespace
}  // namespace markbase::tokenizer::jinja
