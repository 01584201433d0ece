#include "constrain/state_space.h"

#include <algorithm>
#include <functional>

namespace vllm {
namespace {

constexpr uint64_t kFree = ~uint64_t{0};
constexpr int32_t kReturnOutermost = -1;  // node in the content of a frame

uint64_t mix(uint64_t h, uint64_t value) {
  h = (h ^ value) * 0x9e3779b97f4a7c15ull;
  return h ^ h >> 29;
}

uint64_t key_of(Item item) {
  return static_cast<uint64_t>(static_cast<uint32_t>(item.node)) << 32 | static_cast<uint32_t>(item.frame);
}

uint64_t hash_of(const std::vector<Item>& items, bool flag) {
  uint64_t h = flag ? 3 : 5;
  for (const Item& item : items) h = mix(h, key_of(item));
  return h;
}

}  // namespace

StateSpace::StateSpace(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)),
      byte_class_(grammar_->byte_class()),
      class_count_(grammar_->class_count()) {
  callers_.resize(grammar_->rule_count());
  visited_.assign(64, kFree);
  std::vector<Item> none;
  intern_state(none, false);
  std::fill(transitions_.begin(), transitions_.end(), kDead);
  frames_.push_back({0, 1, false});
  frame_items_.push_back({kReturnOutermost, 0});
  after_frame_.push_back(kDead);
  visit({grammar_->start(grammar_->root()), kOutermost});
  initial_ = close();
}

int32_t StateSpace::make_transition(int32_t state, uint8_t byte) {
  const Range range = states_[state];
  for (uint32_t i = range.first; i < range.first + range.count; ++i) {
    const Item item = state_items_[i];
    for (const Edge& edge : grammar_->edges(item.node)) {
      ++work_;
      if (edge.kind == Edge::Kind::Bytes && edge.low <= byte && byte <= edge.high)
        visit({edge.target, item.frame});
    }
  }
  const int32_t next = close();
  // A state that could not be finished must not be remembered as dead for the next caller.
  if (!exhausted_) transitions_[static_cast<size_t>(state) * class_count_ + byte_class_[byte]] = next;
  return next;
}

int32_t StateSpace::next_token(int32_t state, int32_t token, int32_t state_by_bytes) {
  bool any = false;
  const Range range = states_[state];
  for (uint32_t i = range.first; i < range.first + range.count; ++i) {
    const Item item = state_items_[i];
    for (const Edge& edge : grammar_->edges(item.node)) {
      if (edge.kind != Edge::Kind::Tokens) continue;
      const std::vector<int32_t>& ids = grammar_->token_set(edge.arg);
      if (!std::binary_search(ids.begin(), ids.end(), token)) continue;
      any = true;
      visit({edge.target, item.frame});
    }
  }
  if (!any) return state_by_bytes;
  for (const Item& item : items(state_by_bytes)) visit(item);
  leaves_ = leaves(state_by_bytes);
  return close();
}

int32_t StateSpace::at_node(int32_t node) {
  const auto [at, created] = at_node_.try_emplace(node, kDead);
  if (created) {
    std::vector<Item> items{{node, kOutermost}};
    at->second = intern_state(items, false);
  }
  return at->second;
}

int32_t StateSpace::after_frame(int32_t frame) {
  if (after_frame_[frame] >= 0) return after_frame_[frame];
  const Range range = frames_[frame];
  for (uint32_t i = range.first; i < range.first + range.count; ++i) {
    const Item item = frame_items_[i];
    if (item.node == kReturnOutermost) {
      leaves_ = true;
    } else {
      visit(item);
    }
  }
  const int32_t next = close();
  if (!exhausted_) after_frame_[frame] = next;
  return next;
}

void StateSpace::visit(Item item) {
  ++work_;
  const uint64_t key = key_of(item);
  if (visited_count_ * 2 >= visited_.size()) {
    std::vector<uint64_t> old(visited_.size() * 2, kFree);
    old.swap(visited_);
    for (const uint64_t k : old) {
      if (k == kFree) continue;
      size_t slot = mix(0, k) & (visited_.size() - 1);
      while (visited_[slot] != kFree) slot = (slot + 1) & (visited_.size() - 1);
      visited_[slot] = k;
    }
  }
  size_t slot = mix(0, key) & (visited_.size() - 1);
  while (visited_[slot] != kFree) {
    if (visited_[slot] == key) return;
    slot = (slot + 1) & (visited_.size() - 1);
  }
  visited_[slot] = key;
  ++visited_count_;
  work_list_.push_back(item);
}

void StateSpace::reset_visited() {
  if (visited_.size() > 4096) visited_.resize(64);
  std::fill(visited_.begin(), visited_.end(), kFree);
  visited_count_ = 0;
}

void StateSpace::process(Item item) {
  bool scans = false;
  for (const Edge& edge : grammar_->edges(item.node)) {
    switch (edge.kind) {
      case Edge::Kind::Empty:
        visit({edge.target, item.frame});
        break;
      case Edge::Kind::Call: {
        if (grammar_->nullable(edge.arg)) visit({edge.target, item.frame});
        std::vector<Item>& callers = callers_[edge.arg];
        if (callers.empty()) {
          pending_.emplace_back(grammar_->rank(edge.arg), edge.arg);
          std::push_heap(pending_.begin(), pending_.end(), std::greater<>());
        }
        if (grammar_->ends(edge.target)) {
          // Nothing follows the call in this rule: return to its callers directly, so that recursion at the
          // end of a rule needs no deeper frames.
          const Range outer = frames_[item.frame];
          callers.insert(callers.end(), frame_items_.begin() + outer.first,
                         frame_items_.begin() + outer.first + outer.count);
        } else {
          callers.push_back({edge.target, item.frame});
        }
        break;
      }
      default:
        scans = true;
    }
  }
  if (scans) scanning_.push_back(item);
  if (!grammar_->accepts(item.node)) return;
  const Range outer = frames_[item.frame];
  for (uint32_t i = outer.first; i < outer.first + outer.count; ++i) {
    const Item back = frame_items_[i];
    if (back.node == kReturnOutermost) {
      leaves_ = true;
    } else {
      visit(back);
    }
  }
}

int32_t StateSpace::close() {
  const auto abandon = [&] {
    exhausted_ = true;
    work_list_.clear();
    for (const auto& [rank, rule] : pending_) callers_[rule].clear();
    pending_.clear();
  };
  while (true) {
    while (!work_list_.empty()) {
      const Item item = work_list_.back();
      work_list_.pop_back();
      process(item);
      if (visited_count_ > kMaxItems || work_ > work_limit_) abandon();
    }
    if (pending_.empty()) break;
    // All that can still call the rule of the lowest rank has been processed: its frame is complete.
    std::pop_heap(pending_.begin(), pending_.end(), std::greater<>());
    const int32_t rule = pending_.back().second;
    pending_.pop_back();
    const int32_t frame = intern_frame(callers_[rule]);
    callers_[rule].clear();
    visit({grammar_->start(rule), frame});
  }
  const int32_t state = exhausted_ ? kDead : intern_state(scanning_, leaves_);
  scanning_.clear();
  leaves_ = false;
  reset_visited();
  return state;
}

int32_t StateSpace::intern_frame(std::vector<Item>& content) {
  std::sort(content.begin(), content.end());
  content.erase(std::unique(content.begin(), content.end()), content.end());
  work_ += content.size();
  const uint64_t hash = hash_of(content, false);
  const auto [first, last] = frame_index_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    const Range& range = frames_[at->second];
    if (std::equal(content.begin(), content.end(), frame_items_.begin() + range.first,
                   frame_items_.begin() + range.first + range.count)) {
      return at->second;
    }
  }
  const auto frame = static_cast<int32_t>(frames_.size());
  frames_.push_back(
      {static_cast<uint32_t>(frame_items_.size()), static_cast<uint32_t>(content.size()), false});
  frame_items_.insert(frame_items_.end(), content.begin(), content.end());
  after_frame_.push_back(-1);
  frame_index_.emplace(hash, frame);
  return frame;
}

int32_t StateSpace::intern_state(std::vector<Item>& content, bool leaves) {
  std::sort(content.begin(), content.end());
  const uint64_t hash = hash_of(content, leaves);
  const auto [first, last] = state_index_.equal_range(hash);
  for (auto at = first; at != last; ++at) {
    const Range& range = states_[at->second];
    if (range.leaves == leaves &&
        std::equal(content.begin(), content.end(), state_items_.begin() + range.first,
                   state_items_.begin() + range.first + range.count)) {
      return at->second;
    }
  }
  const auto state = static_cast<int32_t>(states_.size());
  states_.push_back(
      {static_cast<uint32_t>(state_items_.size()), static_cast<uint32_t>(content.size()), leaves});
  state_items_.insert(state_items_.end(), content.begin(), content.end());
  transitions_.resize(transitions_.size() + class_count_, -1);
  state_index_.emplace(hash, state);
  return state;
}

size_t StateSpace::bytes() const {
  return (states_.capacity() + frames_.capacity()) * sizeof(Range) +
         (state_items_.capacity() + frame_items_.capacity()) * sizeof(Item) + transitions_.capacity() * 4 +
         (states_.size() + frames_.size()) * 48 + at_node_.size() * 48;
}

}  // namespace vllm
