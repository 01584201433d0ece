// What is done with a fuzzed input. A target throws Violation when something does not hold, and otherwise
// returns a short mark of what happened: inputs with a new mark are worth damaging further.
#pragma once
#include <algorithm>
#include <bit>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "constrain/compiler.h"
#include "constrain_check.h"
#include "fuzz_mutator.h"
#include "serve/jinja/template.h"
#include "serve/reasoning/reasoning_parser.h"
#include "serve/tools/tool_dialects.h"
#include "text/unicode.h"

namespace vllm::fuzz {

struct Violation {
  std::string what;
};

inline void require(bool holds, const char* what, const std::string& detail = {}) {
  if (!holds) throw Violation{what + (detail.empty() ? "" : ": " + detail)};
}

inline double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline Json read_json(const std::string& name) {
  return parse_json(read_file(FIXTURES "/" + name), name.c_str(), Status::Runtime);
}

inline std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// A refusal by its kind: numbers, and what is between its first and last quote, left out.
inline std::string mark_of(const Error& error) {
  require(error.status() == Status::InvalidArgument, "the refusal is no InvalidArgument", error.message());
  require(find_invalid_utf8(error.message()) == std::string_view::npos, "the refusal is no UTF-8");
  std::string mark = error.message();
  const size_t quoted = mark.find('\'');
  if (quoted != std::string::npos) mark.erase(quoted, mark.rfind('\'') + 1 - quoted);
  std::erase_if(mark, [](char c) { return c >= '0' && c <= '9'; });
  return mark.substr(0, 80);
}

// --- chat templates

inline std::vector<std::string> jinja_seeds() {
  std::vector<std::string> seeds;
  const Json templates = read_json("jinja/templates.json"), expressions = read_json("jinja/expressions.json");
  for (const Json& row : templates) seeds.push_back(row["template"]);
  for (const Json& row : expressions["cases"])
    seeds.push_back("{{ " + row["expression"].get<std::string>() + " }}");
  for (const char* name : {"jinja/qwen3.json", "jinja/smollm2.json"})
    seeds.push_back(read_json(name)["template"]);
  return seeds;
}

inline std::string run_jinja(const std::string& source, Random&) {
  static const Json variables = [] {
    Json all = read_json("jinja/expressions.json")["context"];
    const Json conversation = read_json("jinja/qwen3.json")["cases"].back()["context"];
    for (const auto& [name, value] : conversation.items()) all[name] = value;
    return all;
  }();
  const std::tm now{};
  try {
    const auto tree = jinja::Template::parse(source);
    const std::string text = tree->render(variables, now);
    require(find_invalid_utf8(text) == std::string_view::npos, "the text is no UTF-8");
    require(tree->render(variables, now) == text, "two renderings differ");
    return text.empty() ? "nothing" : "text";
  } catch (const Error& error) {
    return mark_of(error);
  }
}

// --- constraints

inline std::vector<std::string> constraint_seeds(const char* list) {
  std::vector<std::string> seeds;
  const Json cases = read_json("constrain/cases.json");
  const bool schemas = list == std::string_view("schemas");
  for (const Json& one : cases[list]) seeds.push_back(schemas ? dump_json(one) : one.get<std::string>());
  return seeds;
}

/// Compiles and follows a random text: masks agree with what is taken, taking back is exact.
inline std::string follow(const ConstraintSpec& spec, Random& random, bool is_json) {
  static const auto tokenizer = testing::bytes_and(
      {"\",\"", "\":", "{\"", "\"}", "<think>", "ab", "00", "\xf0\x9f", "\xc3\xa9x"}, {"<|tool|>"});
  const int32_t vocab = tokenizer.vocab_size();
  const int32_t end = tokenizer.end_ids()[0];
  try {
    ConstraintCompiler compiler(tokenizer, tokenizer.end_ids());
    const auto constraint = compiler.make(spec);
    // The work of one mask is bounded: one that took long may lack tokens that would be taken.
    bool cut = false;
    const auto mask_now = [&] {
      const double start = cpu_seconds();
      auto mask = testing::mask_of(*constraint, vocab);
      cut = cpu_seconds() - start > 0.005;
      return mask;
    };
    const auto take = [&](int32_t id) { return constraint->accept(std::vector<int32_t>{id}) == 1; };
    const auto first = mask_now();
    const bool first_cut = cut;
    std::string text;
    int count = 0;
    const double start = cpu_seconds();
    for (; count < 40 && cpu_seconds() - start < 0.5; ++count) {
      const auto mask = mask_now();
      require(testing::allowed(mask, end) == constraint->can_end(), "the end's bit is not can_end", text);
      std::vector<int32_t> next;
      for (int32_t id = 0; id < vocab; ++id) {
        if (id != end && testing::allowed(mask, id)) next.push_back(id);
      }
      for (int i = 0; i < 6; ++i) {
        const auto id = static_cast<int32_t>(random.below(vocab));
        const bool taken = take(id);
        require(taken == testing::allowed(mask, id) || cut, "the mask is not what is taken", text);
        if (taken) constraint->rollback(1);
      }
      if (next.empty()) {
        require(constraint->can_end() || constraint->is_dead(), "nothing may follow and nobody says so",
                text);
        require(constraint->can_end() || !constraint->error().empty(), "a dead end without a reason", text);
        break;
      }
      require(!constraint->is_dead(), "dead where tokens are allowed", text);
      const int32_t id = next[random.below(next.size())];
      if (!take(id)) {
        require(cut, "an allowed token was not taken", text);
        break;
      }
      text += tokenizer.bytes(id);
    }
    const bool complete = constraint->can_end();
    if (complete && is_json) {
      try {
        [[maybe_unused]] const Json value = Json::parse(text);
      } catch (const Json::out_of_range&) {  // 1e999 is JSON
      } catch (const Json::parse_error&) {
        throw Violation{"what may end is no JSON: " + text};
      }
    }
    constraint->rollback(count);
    require(mask_now() == first || first_cut || cut, "taken back it is another state", text);
    size_t begins = 0;
    for (const uint32_t word : first) begins += std::popcount(word);
    return format("%s, %zu tokens begin it%s", complete ? "complete" : "open", begins, cut ? ", cut" : "");
  } catch (const Error& error) {
    require(error.message().find('\n') == std::string::npos, "the refusal has several lines",
            error.message());
    return mark_of(error);
  }
}

template <ConstraintSpec::Kind kind>
std::string run_constraint(const std::string& text, Random& random) {
  return follow(testing::spec(kind, text), random, kind == ConstraintSpec::Kind::JsonSchema);
}

/// As a tool's parameters: what cannot be enforced is loosened.
inline std::string run_parameters(const std::string& text, Random& random) {
  ConstraintSpec spec = testing::spec(ConstraintSpec::Kind::StructuralTags, "");
  spec.tags.mode = StructuralTags::Mode::Required;
  spec.tags.several = false;
  spec.tags.tags.emplace_back().content.text = text;
  return follow(spec, random, true);
}

inline std::string run_tags(const std::string& text, Random& random) {
  ConstraintSpec spec = testing::spec(ConstraintSpec::Kind::StructuralTags, "");
  try {
    spec.tags = parse_structural_tag_request(text);
  } catch (const Error& error) {
    return mark_of(error);
  }
  return follow(spec, random, false);
}

// --- parsers of a model's text; an input's first line names the dialect

struct Named {
  std::string name, text;
  bool valid = false;  // UTF-8
};

/// Half of the broken texts are made valid: only then what comes out has to be.
inline Named split_name(const std::string& input, const std::vector<std::string>& names, Random& random) {
  const size_t line = std::min(input.find('\n'), input.size());
  Named result{input.substr(0, line), input.substr(std::min(line + 1, input.size()))};
  if (std::find(names.begin(), names.end(), result.name) == names.end())
    result = {random.one_of(names), input};
  if (random.coin()) {
    for (size_t bad; (bad = find_invalid_utf8(result.text)) != std::string_view::npos;)
      result.text.erase(bad, 1);
  }
  result.valid = find_invalid_utf8(result.text) == std::string_view::npos;
  return result;
}

/// Calls `feed` with pieces of at most `most` bytes; 0: one piece.
inline void cut(std::string_view text, size_t most, Random& random,
                const std::function<void(std::string_view)>& feed) {
  while (!text.empty()) {
    const size_t size = most == 0 ? text.size() : std::min(text.size(), 1 + random.below(most));
    feed(text.substr(0, size));
    text.remove_prefix(size);
  }
}

inline void require_text(const Named& input, const std::string& text) {
  require(!input.valid || find_invalid_utf8(text) == std::string_view::npos, "a delta is no UTF-8");
}

struct Parsed {
  std::string content, calls;
  int count = 0;
  bool operator==(const Parsed&) const = default;
};

inline Parsed parse_calls(const Named& input, size_t most, Random& random) {
  static const Json tools = read_json("tool_calls/hermes.json")["tools"];
  const auto parser = make_tool_parser(find_tool_dialect(input.name), tools);
  Parsed result;
  const auto add = [&](const ToolDelta& delta) {
    require_text(input, delta.content);
    result.content += delta.content;
    for (const ToolCallDelta& call : delta.calls) {
      require_text(input, call.name + call.arguments);
      require(call.index == result.count || call.index == result.count - 1, "calls are out of order");
      require((call.index == result.count) == !call.name.empty(),
              "a call's name is not in its first piece alone");
      if (call.index == result.count) ++result.count, result.calls += "\n" + call.name + " ";
      result.calls += call.arguments;
    }
  };
  cut(input.text, most, random, [&](std::string_view piece) { add(parser->feed(piece)); });
  add(parser->finish());
  return result;
}

inline std::string run_tool_calls(const std::string& text, Random& random) {
  static const std::vector<std::string> names = tool_dialect_names();
  const Named input = split_name(text, names, random);
  const Parsed whole = parse_calls(input, 0, random);
  // A control byte becomes six in a JSON string, a byte that is no UTF-8 three.
  require(whole.content.size() + whole.calls.size() <= 6 * text.size() + 100, "more comes out than went in");
  for (const size_t most : {1, 3, 12, 60})
    require(parse_calls(input, most, random) == whole, "cut into pieces it is parsed otherwise");
  return input.name + " " + std::to_string(std::min(whole.count, 3)) + (whole.content.empty() ? "" : " text");
}

inline std::vector<std::string> tool_call_seeds() {
  std::vector<std::string> seeds;
  for (const auto& path : files_in(FIXTURES "/tool_calls")) {
    const Json fixture = read_json("tool_calls/" + path.filename().string());
    for (const Json& one : fixture["cases"])
      seeds.push_back(fixture["dialect"].get<std::string>() + "\n" + one["text"].get<std::string>());
  }
  return seeds;
}

struct Thought {
  std::string reasoning, content;
  bool repeats = false, thinking = false;
  bool operator==(const Thought&) const = default;
};

inline Thought parse_thought(const Named& input, const ReasoningStart& start, bool natural, size_t most,
                             Random& random) {
  const auto parser = make_reasoning_parser(find_reasoning_dialect(input.name), start, nullptr);
  Thought result;
  const auto add = [&](const ReasoningDelta& delta) {
    require_text(input, delta.reasoning);
    require_text(input, delta.content);
    result.reasoning += delta.reasoning;
    result.content += delta.content;
    result.repeats = result.repeats || delta.repeats_thought;
  };
  cut(input.text, most, random, [&](std::string_view piece) { add(parser->feed(piece)); });
  result.thinking = parser->thinking();
  add(parser->finish(natural));
  return result;
}

inline std::string run_reasoning(const std::string& text, Random& random) {
  static const std::vector<std::string> names = reasoning_dialect_names();
  static const std::vector<std::string> prompts = {"", "<|im_start|>assistant\n<think>\n",
                                                   "<|im_start|>assistant\n<think>\n\n</think>\n\n"};
  const Named input = split_name(text, names, random);
  const std::string& prompt = random.one_of(prompts);
  const ReasoningStart start{prompt, random.coin()};
  const bool natural = random.coin();
  const Thought whole = parse_thought(input, start, natural, 0, random);
  // A byte that is no UTF-8 becomes three; an open thought comes twice.
  require(whole.content.size() + whole.reasoning.size() <= 6 * text.size() + 100,
          "more comes out than went in");
  for (const size_t most : {1, 3, 12, 60})
    require(parse_thought(input, start, natural, most, random) == whole,
            "cut into pieces it is parsed otherwise");
  return input.name + (whole.reasoning.empty() ? "" : " thought") + (whole.content.empty() ? "" : " content");
}

// --- the table

struct Target {
  const char* name;  // also of the folder of its corpus
  std::vector<std::string> (*seeds)();
  std::string (*run)(const std::string& input, Random& random);
  int rounds;          // of one run of the tests
  double cpu_seconds;  // that one input may take
  size_t memory_mib;   // that one input may take
};

inline const std::vector<Target>& targets() {
  using Kind = ConstraintSpec::Kind;
  static const auto none = +[] { return std::vector<std::string>(); };
  static const auto schemas = +[] { return constraint_seeds("schemas"); };
  static const std::vector<Target> table = {
      {"jinja", jinja_seeds, run_jinja, 12000, 5, 600},
      {"schema", schemas, run_constraint<Kind::JsonSchema>, 2000, 2, 100},
      {"parameters", schemas, run_parameters, 2000, 2, 100},
      {"regex", [] { return constraint_seeds("regexes"); }, run_constraint<Kind::Regex>, 2000, 2, 100},
      {"gbnf", [] { return constraint_seeds("grammars"); }, run_constraint<Kind::Gbnf>, 2000, 2, 100},
      {"tags", none, run_tags, 2000, 2, 100},
      {"tool_calls", tool_call_seeds, run_tool_calls, 5000, 2, 20},
      {"reasoning", none, run_reasoning, 8000, 2, 20},
  };
  return table;
}

}  // namespace vllm::fuzz
