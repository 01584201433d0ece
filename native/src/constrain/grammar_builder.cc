#include "constrain/grammar_builder.h"

#include <algorithm>

#include "base/error.h"
#include "constrain/json_text.h"

namespace vllm {
namespace {

// Rules that match no more than this are copied to where they are called: a call costs more than their few
// bytes.
constexpr int64_t kInlineBytes = 16;
constexpr int64_t kInlineNodes = 80;
// Repetitions from this count on share token masks between copies.
constexpr int kAliasCount = 8;

}  // namespace

std::shared_ptr<const Grammar> Grammar::compile(const Rules& rules, int root) {
  return GrammarBuilder(rules).build(root);
}

std::shared_ptr<const Grammar> GrammarBuilder::build(int root) {
  struct Opener : Grammar {};
  grammar_ = std::make_shared<Opener>();
  grammar_->root_ = root;
  grammar_->starts_.assign(rules_.size(), -1);
  find_inlined();
  inlined_[root] = false;
  grammar_->starts_[root] = new_node();
  queue_.push_back(root);
  while (!queue_.empty()) {
    const int rule = queue_.back();
    queue_.pop_back();
    const int end = add(rules_[rule].body, grammar_->starts_[rule]);
    grammar_->accepts_[end] = true;
  }
  const size_t nodes = grammar_->accepts_.size();
  grammar_->aliases_.resize(grammar_->aliases_.empty() ? 0 : nodes, {-1, 0});
  std::vector<int32_t>& offsets = grammar_->offsets_;
  offsets.assign(nodes + 1, 0);
  for (const auto& [source, edge] : edges_) ++offsets[source + 1];
  for (size_t i = 0; i < nodes; ++i) offsets[i + 1] += offsets[i];
  grammar_->edges_.resize(edges_.size());
  std::vector<int32_t> at(offsets.begin(), offsets.end() - 1);
  for (const auto& [source, edge] : edges_) grammar_->edges_[at[source]++] = edge;
  edges_ = {};
  grammar_->analyse(rules_, canonical_);
  return grammar_;
}

int GrammarBuilder::new_node() {
  const size_t node = grammar_->accepts_.size();
  if (node >= static_cast<size_t>(GrammarLimits::kStates)) {
    fail_argument(
        "The grammar needs more than the %d automaton states that are allowed; every copy of a repeated "
        "element counts.",
        GrammarLimits::kStates);
  }
  grammar_->accepts_.push_back(false);
  return static_cast<int>(node);
}

void GrammarBuilder::connect(int source, Edge edge) {
  if (edges_.size() >= size_t{4} * GrammarLimits::kStates) {
    fail_argument("The grammar needs more than the %d automaton edges that are allowed.",
                  4 * GrammarLimits::kStates);
  }
  edges_.emplace_back(source, edge);
}

void GrammarBuilder::token_edge(int source, const std::vector<int32_t>& ids, int target) {
  std::vector<std::vector<int32_t>>& sets = grammar_->token_sets_;
  size_t index = 0;
  while (index < sets.size() && sets[index] != ids) ++index;
  if (index == sets.size()) sets.push_back(ids);
  connect(source, {.kind = Edge::Kind::Tokens, .arg = static_cast<int32_t>(index), .target = target});
}

void GrammarBuilder::char_edges(int source, const CharSet& set, int target, Suffixes& suffixes) {
  for (const ByteRanges& bytes : utf8_ranges(set)) {
    int next = target;
    for (size_t i = bytes.size() - 1; i > 0; --i) {
      const auto [at, created] =
          suffixes.try_emplace({target, ByteRanges(bytes.begin() + i, bytes.end())}, 0);
      if (created) {
        at->second = new_node();
        byte_edge(at->second, bytes[i].low, bytes[i].high, next);
      }
      next = at->second;
    }
    byte_edge(source, bytes[0].low, bytes[0].high, next);
  }
}

int GrammarBuilder::bytes_from(int source, std::string_view bytes) {
  for (const char byte : bytes) {
    const int next = new_node();
    byte_edge(source, static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), next);
    source = next;
  }
  return source;
}

int GrammarBuilder::add(const Expression& e, int source) {
  using Kind = Expression::Kind;
  switch (e.kind) {
    case Kind::Sequence:
      for (const Expression& part : e.parts) source = add(part, source);
      return source;
    case Kind::Alternatives:
      return add_alternatives(e, source);
    case Kind::Literal:
      return bytes_from(source, e.text);
    case Kind::Chars: {
      const int end = new_node();
      Suffixes suffixes;
      char_edges(source, e.chars, end, suffixes);
      return end;
    }
    case Kind::Repeat:
      return add_repeat(e, source);
    case Kind::Prefix: {
      const int end = new_node();
      for (size_t i = 0; i < e.parts.size(); ++i) {
        if (i >= static_cast<size_t>(e.min)) empty_edge(source, end);
        source = add(e.parts[i], source);
      }
      empty_edge(source, end);
      return end;
    }
    case Kind::Reference: {
      if (inlined_[e.rule]) return add(rules_[e.rule].body, source);
      if (grammar_->starts_[e.rule] < 0) {
        grammar_->starts_[e.rule] = new_node();
        queue_.push_back(e.rule);
      }
      const int end = new_node();
      connect(source, {.kind = Edge::Kind::Call, .arg = e.rule, .target = end});
      return end;
    }
    case Kind::Tokens: {
      const int end = new_node();
      token_edge(source, e.ids, end);
      return end;
    }
    case Kind::FreeText:
      return add_free_text(e, source);
    case Kind::OtherKey:
      return add_other_key(e, source);
  }
  return source;
}

int GrammarBuilder::add_alternatives(const Expression& e, int source) {
  const int end = new_node();
  std::vector<std::string_view> texts;
  for (const Expression& part : e.parts) {
    if (part.kind == Expression::Kind::Literal) {
      texts.push_back(part.text);
    } else {
      empty_edge(add(part, source), end);
    }
  }
  return add_literals(std::move(texts), source, end);
}

int GrammarBuilder::add_literals(std::vector<std::string_view> texts, int source, int end) {
  std::sort(texts.begin(), texts.end());
  std::vector<int> path{source};  // nodes along the text before, one a byte
  std::string_view before;
  for (const std::string_view text : texts) {
    const size_t common =
        std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first - text.begin();
    path.resize(common + 1);
    for (size_t i = common; i < text.size(); ++i) {
      const int next = new_node();
      byte_edge(path.back(), static_cast<uint8_t>(text[i]), static_cast<uint8_t>(text[i]), next);
      path.push_back(next);
    }
    empty_edge(path.back(), end);
    before = text;
  }
  return end;
}

int GrammarBuilder::add_repeat(const Expression& e, int source) {
  const Expression& part = e.parts[0];
  const bool bounded = e.max != kUnbounded;
  if (std::max(e.min, e.max) > GrammarLimits::kRepetitions) {
    fail_argument("A repetition of %d is more than the %d that are allowed.", std::max(e.min, e.max),
                  GrammarLimits::kRepetitions);
  }
  const int copies = bounded ? e.max : e.min;
  const bool alias = copies >= kAliasCount && !extent(part).nullable;
  const int end = new_node();
  std::vector<std::pair<int, int>> ranges;  // nodes of each copy, from first to before second
  int node = source;
  for (int i = 0; i < copies; ++i) {
    if (i >= e.min) empty_edge(node, end);
    const int first = new_node();
    empty_edge(node, first);
    node = add(part, first);
    ranges.emplace_back(first, static_cast<int>(grammar_->accepts_.size()));
  }
  const auto add_loop = [&](bool leaves) {
    const int loop = new_node();
    empty_edge(add(part, loop), loop);
    if (leaves) empty_edge(loop, end);
    return loop;
  };
  if (bounded) {
    empty_edge(node, end);
  } else {
    empty_edge(node, add_loop(true));
  }
  if (!alias) return end;

  // Copy i ends as repetition i + 1 and every byte ends at most one: the count is out of reach for a while.
  int must_go_on = -1, may_leave = -1;
  if (e.min >= kAliasCount) canonical_.push_back(must_go_on = add_loop(false));
  if (bounded && e.max - e.min >= kAliasCount) canonical_.push_back(may_leave = add_loop(true));
  std::vector<Grammar::Alias>& aliases = grammar_->aliases_;
  aliases.resize(grammar_->accepts_.size(), {-1, 0});
  for (int i = 0; i < copies; ++i) {
    const int loop = i < e.min ? must_go_on : may_leave;
    const int bytes = i < e.min ? e.min - i - 1 : e.max - i;
    if (loop < 0 || bytes == 0) continue;
    for (int n = ranges[i].first; n < ranges[i].second; ++n) {
      if (aliases[n].node < 0) aliases[n] = {loop + n - ranges[i].first, bytes};
    }
  }
  return end;
}

/// The automaton of Aho and Corasick without the transitions that complete a text.
int GrammarBuilder::add_free_text(const Expression& e, int source) {
  struct State {
    std::map<uint8_t, int> next;
    int fallback = 0;
    bool complete = false;
  };
  std::vector<State> states(1);
  for (const std::string& text : e.texts) {
    int at = 0;
    for (const char byte : text) {
      const int fresh = static_cast<int>(states.size());
      const auto [found, created] = states[at].next.try_emplace(static_cast<uint8_t>(byte), fresh);
      at = found->second;
      if (created) states.emplace_back();
    }
    states[at].complete = true;
  }
  const auto step = [&](int state, uint8_t byte) {
    for (;; state = states[state].fallback) {
      const auto found = states[state].next.find(byte);
      if (found != states[state].next.end()) return found->second;
      if (state == 0) return 0;
    }
  };
  std::vector<int> order{0};
  for (size_t i = 0; i < order.size(); ++i) {
    const int state = order[i];
    for (const auto& [byte, child] : states[state].next) {
      states[child].fallback = state == 0 ? 0 : step(states[state].fallback, byte);
      states[child].complete = states[child].complete || states[states[child].fallback].complete;
      order.push_back(child);
    }
  }
  const int end = new_node();
  std::vector<int> nodes(states.size());
  for (int& node : nodes) node = new_node();
  empty_edge(source, nodes[0]);
  for (size_t s = 0; s < states.size(); ++s) {
    if (states[s].complete) continue;
    empty_edge(nodes[s], end);
    if (!e.ids.empty()) token_edge(nodes[s], e.ids, nodes[0]);
    for (int low = 0, high; low < 256; low = high + 1) {
      const int target = step(static_cast<int>(s), static_cast<uint8_t>(low));
      for (high = low; high < 255 && step(static_cast<int>(s), static_cast<uint8_t>(high + 1)) == target;)
        ++high;
      if (!states[target].complete) byte_edge(nodes[s], low, high, nodes[target]);
    }
  }
  return end;
}

/// A trie of the texts' characters and escapes; what leaves it, or ends inside it, is another key.
int GrammarBuilder::add_other_key(const Expression& e, int source) {
  struct Branch {
    std::map<std::string, int> next;
    bool complete = false;
  };
  std::vector<Branch> trie(1);
  for (const std::string& text : e.texts) {
    int at = 0;
    for (size_t i = 0; i < text.size();) {
      const std::string unit = json_string_unit(text, i);
      i += unit.size();
      const int fresh = static_cast<int>(trie.size());
      const auto [found, created] = trie[at].next.try_emplace(unit, fresh);
      at = found->second;
      if (created) trie.emplace_back();
    }
    trie[at].complete = true;
  }
  const int end = new_node();
  const int rest = new_node();  // differs already
  Suffixes suffixes;
  const bool json = e.chars.empty();
  const std::vector<std::string> escapes = json ? json_needed_escapes() : std::vector<std::string>();
  const auto add_others = [&](int node, const std::map<std::string, int>& taken, bool first) {
    CharSet raw = json ? json_raw_chars() : e.chars;
    if (!json && first) raw = raw.without({{' ', ' '}});
    CharSet spelt;
    for (const auto& [unit, child] : taken) {
      if (unit[0] != '\\') {
        const int32_t c = decode_character(unit);
        spelt.add(c, c);
      }
    }
    char_edges(node, raw.without(spelt), rest, suffixes);
    std::vector<std::string_view> others;
    for (const std::string& escape : escapes) {
      if (!taken.contains(escape)) others.push_back(escape);
    }
    add_literals(std::move(others), node, rest);
  };
  empty_edge(rest, end);
  const int again = new_node();
  empty_edge(rest, again);
  add_others(again, {}, false);
  std::vector<int> nodes(trie.size());
  for (int& node : nodes) node = new_node();
  empty_edge(source, nodes[0]);
  for (size_t t = 0; t < trie.size(); ++t) {
    if (!trie[t].complete && (json || t > 0)) empty_edge(nodes[t], end);
    for (const auto& [unit, child] : trie[t].next) empty_edge(bytes_from(nodes[t], unit), nodes[child]);
    add_others(nodes[t], trie[t].next, t == 0);
  }
  return end;
}

void GrammarBuilder::find_inlined() {
  inlined_.assign(rules_.size(), false);
  for (int pass = 0; pass < 3; ++pass) {
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (inlined_[i]) continue;
      const Extent size = extent(rules_[i].body);
      inlined_[i] = size.bytes <= kInlineBytes && size.nodes <= kInlineNodes;
    }
  }
}

GrammarBuilder::Extent GrammarBuilder::extent(const Expression& e) const {
  using Kind = Expression::Kind;
  Extent size{0, 1, true};
  const auto limit = [](Extent s) {
    return Extent{std::min(s.bytes, kMany), std::min(s.nodes, kMany), s.nullable};
  };
  switch (e.kind) {
    case Kind::Sequence:
      for (const Expression& part : e.parts) {
        const Extent more = extent(part);
        size = limit({size.bytes + more.bytes, size.nodes + more.nodes, size.nullable && more.nullable});
      }
      return size;
    case Kind::Alternatives:
      size.nullable = false;
      for (const Expression& part : e.parts) {
        const Extent more = extent(part);
        size = limit(
            {std::max(size.bytes, more.bytes), size.nodes + more.nodes, size.nullable || more.nullable});
      }
      return size;
    case Kind::Literal: {
      const auto bytes = static_cast<int64_t>(e.text.size());
      return {bytes, bytes, bytes == 0};
    }
    case Kind::Chars:
      return {4, static_cast<int64_t>(8 + e.chars.ranges().size()), false};
    case Kind::Repeat: {
      const Extent part = extent(e.parts[0]);
      const int64_t most = e.max == kUnbounded ? kMany : e.max;
      return limit({most == kMany && part.bytes > 0 ? kMany : part.bytes * most,
                    (part.nodes + 1) * std::max<int64_t>({e.min, e.max, 1}), e.min == 0 || part.nullable});
    }
    case Kind::Prefix:
      size.nullable = e.min == 0;
      for (const Expression& part : e.parts) {
        const Extent more = extent(part);
        size = limit({size.bytes + more.bytes, size.nodes + more.nodes, size.nullable});
      }
      return size;
    case Kind::Reference:
      if (inlined_[e.rule]) return extent(rules_[e.rule].body);
      return {kMany, kMany, true};  // whether the rule is nullable is not known here
    case Kind::Tokens:
      return {kMany, 1, false};
    case Kind::FreeText:
    case Kind::OtherKey:
      return {kMany, kMany, true};
  }
  return size;
}

}  // namespace vllm
