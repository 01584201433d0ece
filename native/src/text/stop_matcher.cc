// Aho-Corasick over the stop strings: one step a byte, and the state's depth is what must be held back.
#include <utility>

#include "base/error.h"
#include "text/detokenizer.h"

namespace vllm {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include)
    : stops_(std::move(stops)), include_(include) {
  nodes_.emplace_back();
  for (size_t i = 0; i < stops_.size(); ++i) {
    if (stops_[i].empty()) fail_argument("Stop string %zu is empty.", i);
    int32_t node = 0;
    for (const char c : stops_[i]) {
      int32_t next = child_of(node, c);
      if (next < 0) {
        next = static_cast<int32_t>(nodes_.size());
        nodes_.push_back({c, -1, nodes_[node].child, 0, nodes_[node].depth + 1, -1});
        nodes_[node].child = next;
        if (node == 0) roots_[static_cast<uint8_t>(c)] = next;
      }
      node = next;
    }
    if (nodes_[node].stop < 0) nodes_[node].stop = static_cast<int32_t>(i);
  }
  // Breadth first: the longest proper suffix of a node that is a node too, and the first stop in the list
  // that ends there.
  std::vector<int32_t> order{0};
  for (size_t at = 0; at < order.size(); ++at) {
    const int32_t parent = order[at];
    for (int32_t node = nodes_[parent].child; node >= 0; node = nodes_[node].sibling) {
      order.push_back(node);
      if (parent == 0) continue;
      nodes_[node].fallback = step(nodes_[parent].fallback, nodes_[node].byte);
      const int32_t other = nodes_[nodes_[node].fallback].stop;
      int32_t& stop = nodes_[node].stop;
      if (other >= 0 && (stop < 0 || other < stop)) stop = other;
    }
  }
}

int32_t StopMatcher::child_of(int32_t node, char byte) const {
  if (node == 0) return roots_[static_cast<uint8_t>(byte)];
  int32_t child = nodes_[node].child;
  while (child >= 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

int32_t StopMatcher::step(int32_t node, char byte) const {
  for (;;) {
    const int32_t child = child_of(node, byte);
    if (child >= 0) return child;
    if (node == 0) return 0;
    node = nodes_[node].fallback;
  }
}

std::string StopMatcher::add(const std::string& text) {
  if (matched_ >= 0) return {};
  if (stops_.empty()) return text;
  const size_t held = held_.size();
  held_ += text;
  for (size_t at = held; at < held_.size(); ++at) {
    state_ = step(state_, held_[at]);
    matched_ = nodes_[state_].stop;
    if (matched_ < 0) continue;
    held_.resize(at + 1 - (include_ ? 0 : stops_[matched_].size()));
    return std::exchange(held_, {});
  }
  const size_t keep = nodes_[state_].depth;
  std::string ready = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return ready;
}

std::string StopMatcher::finish() {
  state_ = 0;
  return std::exchange(held_, {});
}

}  // namespace vllm
