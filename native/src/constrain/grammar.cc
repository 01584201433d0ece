#include "constrain/grammar.h"

#include <algorithm>

#include "base/error.h"

namespace vllm {

/// Nodes from which the rule's end can be reached: by any text, or (through_text false) by the empty one.
std::vector<bool> Grammar::find_nodes(bool through_text, const std::vector<int>& seeds) const {
  const int nodes = node_count();
  // Edges by the nodes that they wait for: their target and, for a call, the called rule's start.
  std::vector<int32_t> sources(edges_.size());
  std::vector<int32_t> offsets(nodes + 1, 0);
  const auto for_each_wait = [&](auto&& use) {
    for (int n = 0; n < nodes; ++n) {
      for (int32_t i = offsets_[n]; i < offsets_[n + 1]; ++i) {
        const Edge& edge = edges_[i];
        if (!through_text && edge.kind != Edge::Kind::Empty && edge.kind != Edge::Kind::Call) continue;
        use(n, i, edge.target);
        if (edge.kind == Edge::Kind::Call) use(n, i, starts_[edge.arg]);
      }
    }
  };
  for_each_wait([&](int n, int32_t i, int32_t waits) {
    sources[i] = n;
    ++offsets[waits + 1];
  });
  for (int n = 0; n < nodes; ++n) offsets[n + 1] += offsets[n];
  std::vector<int32_t> waiting(offsets[nodes]);
  std::vector<int32_t> at(offsets.begin(), offsets.end() - 1);
  for_each_wait([&](int, int32_t i, int32_t waits) { waiting[at[waits]++] = i; });

  std::vector<bool> found(accepts_);
  for (const int seed : seeds) found[seed] = true;
  std::vector<int32_t> work;
  for (int n = 0; n < nodes; ++n) {
    if (found[n]) work.push_back(n);
  }
  while (!work.empty()) {
    const int n = work.back();
    work.pop_back();
    for (int32_t w = offsets[n]; w < offsets[n + 1]; ++w) {
      const Edge& edge = edges_[waiting[w]];
      const int source = sources[waiting[w]];
      if (found[source] || !found[edge.target]) continue;
      if (edge.kind == Edge::Kind::Call && !found[starts_[edge.arg]]) continue;
      found[source] = true;
      work.push_back(source);
    }
  }
  return found;
}

void Grammar::analyse(const Rules& rules, const std::vector<int>& canonical) {
  nullable_ = find_nodes(false, {});
  refuse_left_recursion(rules);
  const std::vector<bool> productive = find_nodes(true, canonical);
  if (!productive[starts_[root_]]) {
    fail_argument("Rule %s matches no finite text.", quote(rules[root_].name).c_str());
  }
  size_t kept = 0;
  for (int n = 0, i = 0; n < node_count(); ++n) {
    for (; i < offsets_[n + 1]; ++i) {
      const Edge& edge = edges_[i];
      if (!productive[edge.target] || (edge.kind == Edge::Kind::Call && !productive[starts_[edge.arg]]))
        continue;
      edges_[kept++] = edge;
    }
    offsets_[n + 1] = static_cast<int32_t>(kept);
  }
  edges_.resize(kept);
  edges_.shrink_to_fit();
  find_ends();
  find_classes();
}

void Grammar::find_ends() {
  ends_.assign(node_count(), false);
  std::vector<int32_t> open(node_count());             // edges not yet known to lead to ends only
  std::vector<std::pair<int32_t, int32_t>> backwards;  // target, source of empty edges
  std::vector<int32_t> work;
  for (int n = 0; n < node_count(); ++n) {
    open[n] = offsets_[n + 1] - offsets_[n];
    if (open[n] == 0 && accepts_[n]) work.push_back(n);
    for (const Edge& edge : edges(n)) {
      if (edge.kind == Edge::Kind::Empty) backwards.emplace_back(edge.target, n);
    }
  }
  std::sort(backwards.begin(), backwards.end());
  while (!work.empty()) {
    const int n = work.back();
    work.pop_back();
    ends_[n] = true;
    for (auto at = std::lower_bound(backwards.begin(), backwards.end(), std::pair{n, 0});
         at != backwards.end() && at->first == n; ++at) {
      if (--open[at->second] == 0) work.push_back(at->second);
    }
  }
}

void Grammar::refuse_left_recursion(const Rules& rules) {
  // called[r]: the rules that r can call before any text.
  std::vector<std::vector<int32_t>> called(starts_.size());
  std::vector<int32_t> seen(node_count(), -1);
  std::vector<int32_t> work;
  for (int rule = 0; rule < rule_count(); ++rule) {
    if (starts_[rule] < 0) continue;
    const auto visit = [&](int node) {
      if (seen[node] == rule) return;
      seen[node] = rule;
      work.push_back(node);
    };
    visit(starts_[rule]);
    while (!work.empty()) {
      const int n = work.back();
      work.pop_back();
      for (const Edge& edge : edges(n)) {
        if (edge.kind == Edge::Kind::Empty) visit(edge.target);
        if (edge.kind != Edge::Kind::Call) continue;
        called[rule].push_back(edge.arg);
        if (nullable(edge.arg)) visit(edge.target);
      }
    }
  }
  std::vector<int32_t> callers(starts_.size(), 0);
  for (const auto& list : called) {
    for (const int32_t rule : list) ++callers[rule];
  }
  for (int rule = 0; rule < rule_count(); ++rule) {
    if (starts_[rule] >= 0 && callers[rule] == 0) work.push_back(rule);
  }
  ranks_.assign(starts_.size(), -1);
  for (int32_t rank = 0; !work.empty(); ++rank) {
    const int rule = work.back();
    work.pop_back();
    ranks_[rule] = rank;
    for (const int32_t next : called[rule]) {
      if (--callers[next] == 0) work.push_back(next);
    }
  }
  for (int rule = 0; rule < rule_count(); ++rule) {
    if (starts_[rule] < 0 || ranks_[rule] >= 0) continue;
    // Every rule without a rank is called by one without; going on among those called ends in the cycle or
    // beyond it. Going back to callers stays in or before it, so look for a rule that reaches itself.
    std::vector<bool> reached(starts_.size(), false);
    work.assign(called[rule].begin(), called[rule].end());
    while (!work.empty()) {
      const int next = work.back();
      work.pop_back();
      if (reached[next]) continue;
      reached[next] = true;
      work.insert(work.end(), called[next].begin(), called[next].end());
    }
    if (!reached[rule]) continue;
    fail_argument("Rule %s refers to itself before it matches any text; left recursion is not supported.",
                  quote(rules[rule].name).c_str());
  }
}

void Grammar::find_classes() {
  std::array<bool, 257> cut{};
  for (const Edge& edge : edges_) {
    if (edge.kind == Edge::Kind::Bytes) cut[edge.low] = cut[edge.high + 1] = true;
  }
  int current = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (byte > 0 && cut[byte]) ++current;
    byte_class_[byte] = static_cast<uint8_t>(current);
    class_bytes_[current] = static_cast<uint8_t>(byte);
  }
  class_count_ = current + 1;
}

size_t Grammar::bytes() const {
  size_t total = sizeof *this + offsets_.size() * sizeof offsets_[0] + edges_.size() * sizeof edges_[0] +
                 accepts_.size() + aliases_.size() * sizeof(Alias) + starts_.size() * 8;
  for (const auto& set : token_sets_) total += set.size() * sizeof set[0];
  return total;
}

}  // namespace vllm
