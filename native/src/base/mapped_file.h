// A read-only memory-mapped file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace vllm {

class MappedFile {
 public:
  /// Maps the whole file. Throws Error(ModelLoad) naming the path when it cannot be opened, is no regular
  /// file or is empty.
  static std::shared_ptr<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

  /// Lets go of the resident pages wholly inside [begin, begin + bytes); they can be read again from the
  /// file.
  void release(const uint8_t* begin, size_t bytes) const;

 private:
  MappedFile(std::string path, const uint8_t* data, size_t size);
  std::string path_;
  const uint8_t* data_;
  size_t size_;
};

/// Whole content of a small text file; Error(ModelLoad) naming the path when unreadable or larger than
/// `limit` bytes.
std::string read_text_file(const std::string& path, size_t limit = size_t{1} << 28);

}  // namespace vllm
