// The texts that a constraint can be written in. All throw Error(InvalidArgument) for what they do not
// accept.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "constrain/compiler.h"
#include "constrain/expression.h"
#include "constrain/token_trie.h"

namespace vllm {

/// GBNF; appends to `rules` and gives the index of rule "root". Errors are placed as LINE:COLUMN.
int parse_gbnf(std::string_view text, const TokenTrie& trie, Rules& rules);

/// A regular expression that the whole text matches. `^` and `$` may stand at its ends.
Expression parse_regex(std::string_view pattern);
/// The inside of a JSON string whose text the pattern matches somewhere, or at the ends that `^` and `$` pin.
Expression parse_string_pattern(std::string_view pattern);

struct JsonStyle {
  bool loose = false;    // as in TagContent
  bool compact = false;  // as in ConstraintSpec
};
/// JSON that fits a schema; appends to `rules` and gives the index of the rule.
int parse_json_schema(std::string_view text, JsonStyle style, Rules& rules,
                      std::vector<std::string>& warnings);
/// Any JSON object; any JSON value.
int add_json_object(bool compact, Rules& rules);
int add_json_value(bool compact, Rules& rules);

Expression parse_choice(const std::vector<std::string>& choices);

Expression parse_structural_tags(const StructuralTags& tags, const TokenTrie& trie, Rules& rules,
                                 std::vector<std::string>& warnings);

}  // namespace vllm
