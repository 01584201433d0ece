// Splitting of normalised text into the pieces that are merged on their own.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"
#include "text/scanners.h"

namespace vllm {

struct Piece {
  std::string_view text;
  bool at_start;  // begins where the whole input begins
};

/// What becomes of the matches of a pattern, as tokenizer.json names it.
enum class SplitBehavior { Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous };

class SplitStage {
 public:
  virtual ~SplitStage() = default;
  /// Appends the parts of `piece` to `out`. Text that is made new goes into `storage`.
  virtual void split(const Piece& piece, std::vector<Piece>& out, std::deque<std::string>& storage) const = 0;
};

std::unique_ptr<SplitStage> scanner_stage(PieceScanner scanner);
/// Uses the hand-written scanner of the regex when there is one, unless `general`.
std::unique_ptr<SplitStage> regex_stage(std::string_view regex, SplitBehavior behavior, bool invert,
                                        bool general = false);
std::unique_ptr<SplitStage> literal_stage(std::string literal, SplitBehavior behavior, bool invert);
std::unique_ptr<SplitStage> digits_stage(bool individual);
/// Puts one space before a piece that does not begin with one.
std::unique_ptr<SplitStage> prefix_space_stage();
enum class PrefixScheme { Never, First, Always };
/// Spaces become `replacement`, one more of it stands first by the scheme; with `split` a piece begins at
/// each of them.
std::unique_ptr<SplitStage> metaspace_stage(std::string replacement, PrefixScheme scheme, bool split);

/// Stages in order, each on the pieces of the one before.
class PreTokenizer {
 public:
  void add(std::unique_ptr<SplitStage> stage) { stages_.push_back(std::move(stage)); }
  /// `text` must be valid UTF-8 and outlive the pieces, as must `storage`. No piece is empty.
  std::vector<Piece> split(std::string_view text, bool at_start, std::deque<std::string>& storage) const;

 private:
  std::vector<std::unique_ptr<SplitStage>> stages_;
};

/// The stages that a GGUF's `tokenizer.ggml.pre` stands for, and what else the name decides.
struct NamedPreTokenizer {
  PreTokenizer pre_tokenizer;
  bool nfc = false;
  bool ignore_merges = false;
  bool adds_bos = false;  // when the file does not say
};
/// Throws Error(ModelLoad) for a name that is not known. `general`: every stage by its regex (for tests).
NamedPreTokenizer named_pre_tokenizer(std::string_view name, bool general = false);
/// All names that named_pre_tokenizer() knows.
std::vector<std::string> pre_tokenizer_names();

}  // namespace vllm
