#include "serve/parsing/reader.h"

#include <algorithm>

namespace vllm {

void Reader::feed(std::string_view bytes) {
  if (bytes.empty() || ended_) return;
  const size_t keep = holders_ > 0 ? held_from_ - dropped_ : position_;
  if (keep > 0 && keep >= buffer_.size() / 2) {
    buffer_.erase(0, keep);
    dropped_ += keep;
    position_ -= keep;
  }
  buffer_ += bytes;
  arrived_ = true;
  resume();
}

void Reader::end() {
  if (ended_) return;
  ended_ = true;
  arrived_ = false;
  resume();
}

void Reader::resume() {
  if (const auto waiting = std::exchange(waiting_, nullptr)) waiting.resume();
}

Match match_any(std::string_view text, bool ended, std::span<const std::string_view> markers) {
  Match best;
  for (size_t i = 0; i < markers.size(); ++i) {
    const std::string_view marker = markers[i];
    if (text.starts_with(marker)) {
      if (best.kind != Match::More && (best.kind == Match::No || marker.size() > best.size)) {
        best.kind = Match::Yes;
        best.size = marker.size();
        best.which = static_cast<int>(i);
      }
    } else if (!ended && marker.starts_with(text)) {
      best.kind = Match::More;
    }
  }
  return best;
}

namespace {

std::string first_bytes_of(std::span<const std::string_view> markers) {
  std::string bytes;
  for (const std::string_view marker : markers) {
    if (bytes.find(marker[0]) == bytes.npos) bytes += marker[0];
  }
  return bytes;
}

}  // namespace

Task<Match> read_until(Reader& in, std::string_view first_bytes_view, Matcher matcher, Sink sink) {
  const std::string first_bytes(first_bytes_view);
  for (;;) {
    const std::string_view rest = in.rest();
    size_t at = 0;
    Match match;
    for (;;) {
      at = rest.find_first_of(first_bytes, at);
      if (at == rest.npos) break;
      match = matcher(rest.substr(at), in.ended());
      if (match.kind != Match::No) break;
      ++at;
    }
    const std::string_view text = rest.substr(0, at);
    if (sink && !text.empty()) sink(text);
    in.skip(text.size());
    if (at != rest.npos && match.kind == Match::Yes) co_return match;
    if (in.ended()) co_return Match();
    co_await in.more();
  }
}

Task<Match> read_until(Reader& in, std::span<const std::string_view> markers, Sink sink) {
  const std::string first_bytes = first_bytes_of(markers);
  Matcher matcher = [markers](std::string_view text, bool ended) { return match_any(text, ended, markers); };
  Match match = co_await read_until(in, first_bytes, std::move(matcher), std::move(sink));
  co_return match;
}

Task<Match> look(Reader& in, Matcher matcher) {
  for (;;) {
    if (in.ended() || !in.rest().empty()) {
      Match match = matcher(in.rest(), in.ended());
      if (match.kind != Match::More) co_return match;
    }
    co_await in.more();
  }
}

Task<Match> look(Reader& in, std::span<const std::string_view> markers) {
  Matcher matcher = [markers](std::string_view text, bool ended) { return match_any(text, ended, markers); };
  Match match = co_await look(in, std::move(matcher));
  co_return match;
}

Task<bool> accept(Reader& in, std::string_view literal) {
  for (;;) {
    const std::string_view rest = in.rest();
    if (rest.starts_with(literal)) {
      in.skip(literal.size());
      co_return true;
    }
    if (in.ended() || !literal.starts_with(rest)) co_return false;
    co_await in.more();
  }
}

Task<int> accept_any(Reader& in, std::span<const std::string_view> markers) {
  const Match match = co_await look(in, markers);
  if (match.kind == Match::Yes) in.skip(match.size);
  co_return match.which;
}

Task<> skip_space(Reader& in) {
  for (;;) {
    const int byte = co_await in.peek();
    if (!is_space(byte)) co_return;
    in.skip(1);
  }
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace vllm
