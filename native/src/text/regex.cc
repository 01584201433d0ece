#include "text/regex.h"

#include <pcre2.h>

#include <algorithm>

#include "base/error.h"
#include "text/unicode.h"

namespace vllm {
namespace {

constexpr size_t kMaxPattern = 16384;

// \s and \w as Oniguruma has them; PCRE2 counts U+180E as a space and no marks as word characters.
constexpr char kSpaces[] =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr char kWords[] =
    R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";

/// The pattern in PCRE2's syntax. Constructs that PCRE2 reads otherwise are refused.
std::string translate(std::string_view pattern) {
  const auto refuse = [&](const std::string& what) {
    fail_load("The regex %s of the tokenizer uses %s, which is not supported.", quote(pattern).c_str(),
              what.c_str());
  };
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (c == '\\' && i + 1 < pattern.size()) {
      ++i;
      switch (next) {
        case 's':
        case 'w': {
          const std::string set = next == 's' ? kSpaces : kWords;
          out += in_class ? set : "[" + set + "]";
          break;
        }
        case 'S':
        case 'W':
          if (in_class) refuse(format("\\%c inside a class", next));
          out += std::string("[^") + (next == 'S' ? kSpaces : kWords) + "]";
          break;
        case 'h':
        case 'H':
        case 'Q':
        case 'E':
        case 'K':
        case 'C':
        case 'N':
        case 'O':
        case 'y':
        case 'Y':
        case 'M':
          refuse(format("\\%c", next));
          break;
        default:
          out += c;
          out += next;
          if (i + 1 < pattern.size() && pattern[i + 1] == '{' &&
              (next == 'p' || next == 'P' || next == 'x')) {
            const size_t end = std::min(pattern.find('}', i), pattern.size() - 1);
            out += pattern.substr(i + 1, end - i);
            i = end;
          }
      }
    } else if (in_class) {
      if (c == '[' && next == ':') {
        const size_t end = pattern.find(":]", i + 2);
        if (end == std::string_view::npos) refuse("an unfinished POSIX class");
        out += pattern.substr(i, end + 2 - i);
        i = end + 1;
        continue;
      }
      if (c == '[') refuse("a class inside a class");
      if (c == '&' && next == '&') refuse("&& inside a class");
      if (c == ']') in_class = false;
      out += c;
    } else {
      if (c == '[') {
        in_class = true;
        out += c;
        if (next == '^') out += pattern[++i];
        if (i + 1 < pattern.size() && pattern[i + 1] == ']') refuse("an empty class");
        continue;
      }
      if (c == '(' && next == '*') refuse("(*");
      if (c == '(' && next == '?') {
        // Inline flags: only i means the same in both.
        for (size_t at = i + 2; at < pattern.size() && pattern[at] != ')' && pattern[at] != ':'; ++at) {
          const char flag = pattern[at];
          if (flag == '=' || flag == '!' || flag == '<' || flag == '>' || flag == '#') break;
          if (flag != 'i' && flag != '-') refuse(format("the group (?%c", flag));
        }
      }
      if (c == '}' && next == '+') refuse("a + behind a counted repetition");
      out += c;
    }
  }
  return out;
}

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

}  // namespace

void Regex::Free::operator()(void* code) const { pcre2_code_free(static_cast<pcre2_code*>(code)); }

Regex::Regex(std::string_view pattern) {
  if (pattern.size() > kMaxPattern) {
    fail_load("A regex of the tokenizer has %zu bytes; at most %zu are allowed.", pattern.size(),
              kMaxPattern);
  }
  const std::string translated = translate(pattern);
  std::unique_ptr<pcre2_compile_context, FreeMatch> context(pcre2_compile_context_create(nullptr));
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                                   &offset, context.get());
  if (!code) {
    PCRE2_UCHAR message[160] = {};
    pcre2_get_error_message(error, message, sizeof message);
    fail_load("The regex %s of the tokenizer cannot be compiled: %s.", quote(pattern).c_str(),
              reinterpret_cast<const char*>(message));
  }
  code_.reset(code);
}

std::vector<std::pair<size_t, size_t>> Regex::find_all(std::string_view text) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  std::unique_ptr<pcre2_match_data, FreeMatch> data(pcre2_match_data_create_from_pattern(code, nullptr));
  std::unique_ptr<pcre2_match_context, FreeMatch> context(pcre2_match_context_create(nullptr));
  // Well-behaved patterns backtrack a few times over the text at most.
  const uint64_t limit = 100000 + 64 * static_cast<uint64_t>(text.size());
  pcre2_set_match_limit(context.get(), static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX)));
  pcre2_set_heap_limit(context.get(), 65536);  // KiB
  std::vector<std::pair<size_t, size_t>> matches;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t at = 0; at <= text.size();) {
    const int rc = pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      fail_argument(
          "The tokenizer's regex needs too many steps for a text of %zu bytes (error %d at byte %zu).",
          text.size(), rc, at);
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    const size_t begin = range[0], end = range[1];
    if (end > begin) {
      matches.emplace_back(begin, end);
      at = end;
    } else {  // an empty match, which none is at the end of another: go on behind the next character
      if (matches.empty() || matches.back().second != begin) matches.emplace_back(begin, begin);
      if (begin >= text.size()) break;
      at = begin;
      read_utf8(text, at);
    }
  }
  return matches;
}

}  // namespace vllm
