#include "text/pre_tokenizer.h"

#include <algorithm>

#include "text/unicode.h"

namespace vllm {
namespace {

struct Range {
  size_t begin, end;
  bool match;
};

/// Matches of a pattern -> the whole text as matches and gaps.
std::vector<Range> with_gaps(const std::vector<std::pair<size_t, size_t>>& matches, size_t size,
                             bool invert) {
  std::vector<Range> ranges;
  ranges.reserve(2 * matches.size() + 1);
  size_t done = 0;
  for (const auto& [begin, end] : matches) {
    if (begin > done) ranges.push_back({done, begin, invert});
    ranges.push_back({begin, end, !invert});
    done = end;
  }
  if (done < size) ranges.push_back({done, size, invert});
  return ranges;
}

std::vector<Range> arrange(const std::vector<Range>& ranges, SplitBehavior behavior) {
  std::vector<Range> out;
  out.reserve(ranges.size());
  switch (behavior) {
    case SplitBehavior::Isolated:
      return ranges;
    case SplitBehavior::Removed:
      for (const Range& range : ranges) {
        if (!range.match) out.push_back(range);
      }
      break;
    case SplitBehavior::Contiguous:
      for (const Range& range : ranges) {
        if (!out.empty() && out.back().match == range.match) {
          out.back().end = range.end;
        } else {
          out.push_back(range);
        }
      }
      break;
    case SplitBehavior::MergedWithPrevious: {
      bool after_match = false;
      for (const Range& range : ranges) {
        if (range.match && !after_match && !out.empty()) {
          out.back().end = range.end;
        } else {
          out.push_back(range);
        }
        after_match = range.match;
      }
      break;
    }
    case SplitBehavior::MergedWithNext: {
      bool before_match = false;  // walking from the end
      for (auto range = ranges.rbegin(); range != ranges.rend(); ++range) {
        if (range->match && !before_match && !out.empty()) {
          out.back().begin = range->begin;
        } else {
          out.push_back(*range);
        }
        before_match = range->match;
      }
      std::reverse(out.begin(), out.end());
      break;
    }
  }
  return out;
}

void emit(const Piece& piece, size_t begin, size_t end, std::vector<Piece>& out) {
  if (end > begin) out.push_back({piece.text.substr(begin, end - begin), piece.at_start && begin == 0});
}

class ScannerStage : public SplitStage {
 public:
  explicit ScannerStage(PieceScanner scanner) : scanner_(scanner) {}
  void split(const Piece& piece, std::vector<Piece>& out, std::deque<std::string>&) const override {
    for (size_t begin = 0; begin < piece.text.size();) {
      const size_t end = scanner_(piece.text, begin);
      emit(piece, begin, end, out);
      begin = end;
    }
  }

 private:
  PieceScanner scanner_;
};

class RegexStage : public SplitStage {
 public:
  RegexStage(std::string_view regex, SplitBehavior behavior, bool invert)
      : regex_(regex), behavior_(behavior), invert_(invert) {}
  void split(const Piece& piece, std::vector<Piece>& out, std::deque<std::string>&) const override {
    for (const Range& range :
         arrange(with_gaps(regex_.find_all(piece.text), piece.text.size(), invert_), behavior_)) {
      emit(piece, range.begin, range.end, out);
    }
  }

 private:
  Regex regex_;
  SplitBehavior behavior_;
  bool invert_;
};

class LiteralStage : public SplitStage {
 public:
  LiteralStage(std::string literal, SplitBehavior behavior, bool invert)
      : literal_(std::move(literal)), behavior_(behavior), invert_(invert) {}
  void split(const Piece& piece, std::vector<Piece>& out, std::deque<std::string>&) const override {
    std::vector<std::pair<size_t, size_t>> matches;
    for (size_t at = 0; (at = piece.text.find(literal_, at)) != std::string_view::npos;
         at += literal_.size()) {
      matches.emplace_back(at, at + literal_.size());
    }
    for (const Range& range : arrange(with_gaps(matches, piece.text.size(), invert_), behavior_)) {
      emit(piece, range.begin, range.end, out);
    }
  }

 private:
  std::string literal_;
  SplitBehavior behavior_;
  bool invert_;
};

class DigitsStage : public SplitStage {
 public:
  explicit DigitsStage(bool individual) : individual_(individual) {}
  void split(const Piece& piece, std::vector<Piece>& out, std::deque<std::string>&) const override {
    size_t begin = 0;
    bool in_digits = false;
    for (size_t pos = 0; pos < piece.text.size();) {
      const size_t at = pos;
      const bool digit = char_class(read_utf8(piece.text, pos)) & kNumber;
      if (digit != in_digits || (digit && individual_)) {
        emit(piece, begin, at, out);
        begin = at;
      }
      in_digits = digit;
    }
    emit(piece, begin, piece.text.size(), out);
  }

 private:
  bool individual_;
};

class PrefixSpaceStage : public SplitStage {
 public:
  void split(const Piece& piece, std::vector<Piece>& out, std::deque<std::string>& storage) const override {
    if (piece.text.starts_with(' ')) {
      out.push_back(piece);
    } else {
      out.push_back({storage.emplace_back(" " + std::string(piece.text)), piece.at_start});
    }
  }
};

class MetaspaceStage : public SplitStage {
 public:
  MetaspaceStage(std::string replacement, PrefixScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}
  void split(const Piece& piece, std::vector<Piece>& out, std::deque<std::string>& storage) const override {
    std::string& text = storage.emplace_back();
    text.reserve(piece.text.size() + replacement_.size());
    const bool begins_with_it = piece.text.starts_with(' ') || piece.text.starts_with(replacement_);
    const bool wanted = scheme_ == PrefixScheme::Always || (scheme_ == PrefixScheme::First && piece.at_start);
    if (wanted && !begins_with_it) text += replacement_;
    for (const char c : piece.text) {
      if (c == ' ') {
        text += replacement_;
      } else {
        text += c;
      }
    }
    const Piece whole{text, piece.at_start};
    size_t begin = 0;
    if (split_) {
      // A run of them: each but the last is a piece of its own.
      for (size_t at = 0; (at = text.find(replacement_, at)) != std::string::npos;
           at += replacement_.size()) {
        emit(whole, begin, at, out);
        begin = at;
      }
    }
    emit(whole, begin, text.size(), out);
  }

 private:
  std::string replacement_;
  PrefixScheme scheme_;
  bool split_;
};

}  // namespace

std::unique_ptr<SplitStage> scanner_stage(PieceScanner scanner) {
  return std::make_unique<ScannerStage>(scanner);
}

std::unique_ptr<SplitStage> regex_stage(std::string_view regex, SplitBehavior behavior, bool invert,
                                        bool general) {
  // The scanners leave no gaps, so that for them inverted removal keeps all pieces too.
  const bool keeps_all =
      behavior == SplitBehavior::Isolated || (behavior == SplitBehavior::Removed && invert);
  const PieceScanner scanner = find_scanner(regex);
  if (scanner && keeps_all && !general) return scanner_stage(scanner);
  return std::make_unique<RegexStage>(regex, behavior, invert);
}

std::unique_ptr<SplitStage> literal_stage(std::string literal, SplitBehavior behavior, bool invert) {
  return std::make_unique<LiteralStage>(std::move(literal), behavior, invert);
}

std::unique_ptr<SplitStage> digits_stage(bool individual) {
  return std::make_unique<DigitsStage>(individual);
}

std::unique_ptr<SplitStage> prefix_space_stage() { return std::make_unique<PrefixSpaceStage>(); }

std::unique_ptr<SplitStage> metaspace_stage(std::string replacement, PrefixScheme scheme, bool split) {
  return std::make_unique<MetaspaceStage>(std::move(replacement), scheme, split);
}

std::vector<Piece> PreTokenizer::split(std::string_view text, bool at_start,
                                       std::deque<std::string>& storage) const {
  std::vector<Piece> pieces, parts;
  if (!text.empty()) pieces.push_back({text, at_start});
  for (const auto& stage : stages_) {
    parts.clear();
    for (const Piece& piece : pieces) stage->split(piece, parts, storage);
    pieces.swap(parts);
  }
  return pieces;
}

}  // namespace vllm
