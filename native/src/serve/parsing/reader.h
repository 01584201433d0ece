// A text that arrives in pieces, read by a coroutine. What a coroutine reads does not depend on how the text
// was cut: whenever it needs more bytes than there are, it waits.
#pragma once
#include <coroutine>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "serve/parsing/task.h"

namespace vllm {

class Reader {
 public:
  Reader() = default;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// The writing side. Each call runs the waiting coroutine until it waits again or is done.
  void feed(std::string_view bytes);
  void end();

  /// The reading side. Views stay valid until the next co_await.
  std::string_view rest() const { return std::string_view(buffer_).substr(position_); }
  void skip(size_t count) { position_ += count; }
  bool ended() const { return ended_; }

  struct MoreAwaiter {
    Reader& reader;
    bool await_ready() const { return reader.ended_; }
    void await_suspend(std::coroutine_handle<> handle) const { reader.waiting_ = handle; }
    bool await_resume() const { return reader.arrived_; }
  };
  /// co_await: false when the text has ended, true when there are more bytes than before.
  MoreAwaiter more() {
    arrived_ = false;
    return {*this};
  }

  struct PeekAwaiter {
    Reader& reader;
    bool await_ready() const { return reader.ended_ || !reader.rest().empty(); }
    void await_suspend(std::coroutine_handle<> handle) const { reader.waiting_ = handle; }
    int await_resume() const {
      return reader.rest().empty() ? -1 : static_cast<unsigned char>(reader.rest().front());
    }
  };
  /// co_await: the next byte, which stays unread, or -1 at the end.
  PeekAwaiter peek() { return {*this}; }

  /// Offset of the next byte in the whole text.
  size_t offset() const { return dropped_ + position_; }
  /// Read bytes from `offset` on, which a Held must keep.
  std::string_view since(size_t offset) const {
    return std::string_view(buffer_).substr(offset - dropped_, this->offset() - offset);
  }

 private:
  friend class Held;
  void resume();

  std::string buffer_;
  size_t position_ = 0;  // of the next byte in buffer_
  size_t dropped_ = 0;   // bytes of the text in front of buffer_
  size_t held_from_ = 0;
  int holders_ = 0;
  bool ended_ = false;
  bool arrived_ = false;
  std::coroutine_handle<> waiting_;
};

/// Keeps what is read from here on, so that it can be taken back as text.
class Held {
 public:
  explicit Held(Reader& reader) : reader_(reader), from_(reader.offset()) {
    if (reader_.holders_++ == 0) reader_.held_from_ = from_;
  }
  ~Held() { --reader_.holders_; }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  std::string_view text() const { return reader_.since(from_); }

 private:
  Reader& reader_;
  size_t from_;
};

/// Whether a text begins with something that is looked for. `More`: it does as far as it goes.
struct Match {
  enum Kind { No, More, Yes };
  Kind kind = No;
  size_t size = 0;   // bytes, when Yes
  int which = -1;    // which of the things looked for
  std::string name;  // what a tag carries
  std::string attributes;
};
/// Says Yes or No within a bounded number of bytes. `ended`: the text goes no further, so More is no answer.
using Matcher = std::function<Match(std::string_view text, bool ended)>;

/// The longest of `markers` that the text starts with.
Match match_any(std::string_view text, bool ended, std::span<const std::string_view> markers);

using Sink = std::function<void(std::string_view)>;

/// Reads up to the first Yes, which stays unread; `which` is -1 at the end of the text. Text goes to `sink`
/// as soon as it cannot be part of a match. A match starts with one of `first_bytes`.
Task<Match> read_until(Reader& in, std::string_view first_bytes, Matcher matcher, Sink sink);
/// The same for literal markers, which must outlive the task.
Task<Match> read_until(Reader& in, std::span<const std::string_view> markers, Sink sink);

/// Match at the reading position; nothing is read.
Task<Match> look(Reader& in, Matcher matcher);
Task<Match> look(Reader& in, std::span<const std::string_view> markers);
/// Reads `literal` if it is next.
Task<bool> accept(Reader& in, std::string_view literal);
/// Reads the longest of `markers` that is next; -1 if none is.
Task<int> accept_any(Reader& in, std::span<const std::string_view> markers);
/// Reads blanks, tabs, line feeds and carriage returns.
Task<> skip_space(Reader& in);

inline bool is_space(int byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }
std::string_view trim(std::string_view text);

}  // namespace vllm
