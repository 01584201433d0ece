#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace vllm {
namespace {

/// An open descriptor of a regular file, closed at the end of the scope.
class Descriptor {
 public:
  explicit Descriptor(const std::string& path) {
    if (path.find('\0') != std::string::npos) fail_load("The path '%s' holds a NUL byte.", path.c_str());
    // Non-blocking, since opening a pipe without a writer would wait for ever.
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) fail_load("%s cannot be opened: %s.", path.c_str(), std::strerror(errno));
    struct stat info;
    const bool known = ::fstat(fd_, &info) == 0;
    if (!known || !S_ISREG(info.st_mode)) {
      ::close(fd_);
      fail_load("%s is %s, needed is a regular file.", path.c_str(),
                known && S_ISDIR(info.st_mode) ? "a directory" : "no regular file");
    }
    size_ = static_cast<size_t>(info.st_size);
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int fd() const { return fd_; }
  size_t size() const { return size_; }

 private:
  int fd_ = -1;
  size_t size_ = 0;
};

}  // namespace

std::shared_ptr<MappedFile> MappedFile::open(const std::string& path) {
  const Descriptor file(path);
  if (file.size() == 0) fail_load("%s is empty.", path.c_str());
  void* data = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (data == MAP_FAILED) {
    fail_load("%s (%zu bytes) cannot be mapped: %s.", path.c_str(), file.size(), std::strerror(errno));
  }
  return std::shared_ptr<MappedFile>(new MappedFile(path, static_cast<const uint8_t*>(data), file.size()));
}

MappedFile::MappedFile(std::string path, const uint8_t* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile::~MappedFile() { ::munmap(const_cast<uint8_t*>(data_), size_); }

void MappedFile::release(const uint8_t* begin, size_t bytes) const {
  const uintptr_t page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t start = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first = (start + page - 1) / page * page;
  uintptr_t last = (start + bytes) / page * page;
  // The last page of the mapping ends with the file.
  if (begin + bytes == data_ + size_) last = (start + bytes + page - 1) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

std::string read_text_file(const std::string& path, size_t limit) {
  const Descriptor file(path);
  if (file.size() > limit) {
    fail_load("%s has %zu bytes, allowed are %zu.", path.c_str(), file.size(), limit);
  }
  std::string text(file.size(), '\0');
  size_t have = 0;
  while (have < text.size()) {
    const ssize_t got = ::read(file.fd(), text.data() + have, text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_load("%s cannot be read: %s.", path.c_str(), std::strerror(errno));
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  text.resize(have);
  return text;
}

}  // namespace vllm
