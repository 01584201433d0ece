// What the log says while something runs.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace vllm::test {

/// What `work` writes to stderr, where the log goes.
template <typename Work>
std::string logged(Work&& work) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("vllm_test_log_" + std::to_string(getpid()));
  std::fflush(stderr);
  const int kept = dup(STDERR_FILENO);
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  dup2(file, STDERR_FILENO);
  close(file);
  work();
  std::fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::filesystem::remove(path);
  return text;
}

}  // namespace vllm::test
