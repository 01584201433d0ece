#include "base/mapped_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <string>

#include "file_writers.h"

using namespace vllm;
using vllm::test::load_error;
using vllm::test::TempDir;

namespace {

std::string open_error(const std::string& path) {
  return load_error([&] { MappedFile::open(path); });
}

}  // namespace

TEST_CASE("a mapped file shows its bytes, before and after release") {
  const TempDir dir;
  std::string content;
  for (int i = 0; i < 50000; ++i) content += static_cast<char>(i * 7);
  const std::string path = dir.write("f", content);
  const auto file = MappedFile::open(path);
  CHECK(file->path() == path);
  REQUIRE(file->size() == content.size());
  const auto same = [&] {
    return std::string_view(reinterpret_cast<const char*>(file->data()), file->size()) == content;
  };
  CHECK(same());
  file->release(file->data(), file->size());
  file->release(file->data() + 5000, 20000);
  file->release(file->data() + 5000, 3);
  CHECK(same());
  CHECK(read_text_file(path) == content);
}

TEST_CASE("what is no readable regular file is refused with its path and reason") {
  const TempDir dir;
  CHECK(open_error(dir.path + "/none") == dir.path + "/none cannot be opened: No such file or directory.");
  CHECK(open_error(dir.path) == dir.path + " is a directory, needed is a regular file.");
  CHECK(open_error("/dev/null") == "/dev/null is no regular file, needed is a regular file.");
  dir.write("empty", "");
  CHECK(open_error(dir.path + "/empty") == dir.path + "/empty is empty.");
  CHECK(read_text_file(dir.path + "/empty").empty());
  REQUIRE(mkfifo((dir.path + "/pipe").c_str(), 0600) == 0);
  CHECK(open_error(dir.path + "/pipe") == dir.path + "/pipe is no regular file, needed is a regular file.");
  dir.write("text", "0123456789");
  CHECK(read_text_file(dir.path + "/text", 10) == "0123456789");
  CHECK_THROWS_AS(read_text_file(dir.path + "/text", 9), Error);
}
