#include "device/cpu/machine.h"

#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <thread>

namespace vllm::cpu {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

std::string read_file(const std::string& path) {
  std::string text;
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (!file) return text;
  char buffer[4096];
  size_t got;
  while (text.size() < (1u << 20) && (got = std::fread(buffer, 1, sizeof buffer, file)) > 0)
    text.append(buffer, got);
  std::fclose(file);
  return text;
}

/// The number at the start of a one-line file; `otherwise` when it is missing or not a number ("max").
uint64_t read_number(const std::string& path, uint64_t otherwise) {
  const std::string text = read_file(path);
  if (text.empty() || text[0] < '0' || text[0] > '9') return otherwise;
  return std::strtoull(text.c_str(), nullptr, 10);
}

/// Value of a "name value" or "name: value" line.
uint64_t read_field(const std::string& text, const char* name, uint64_t otherwise) {
  const size_t length = std::strlen(name);
  for (size_t line = 0; line < text.size();) {
    const size_t end = std::min(text.find('\n', line), text.size());
    if (text.compare(line, length, name) == 0 && line + length < end &&
        std::strchr(": \t", text[line + length]) != nullptr) {
      size_t at = line + length;
      while (at < end && (text[at] < '0' || text[at] > '9')) ++at;
      if (at < end) return std::strtoull(text.c_str() + at, nullptr, 10);
    }
    line = end + 1;
  }
  return otherwise;
}

/// Path of our control group for a version 1 controller, or for version 2 when `controller` is empty.
std::string group_path(const char* controller) {
  const std::string text = read_file("/proc/self/cgroup");
  for (size_t line = 0; line < text.size();) {
    const size_t end = std::min(text.find('\n', line), text.size());
    const std::string entry = text.substr(line, end - line);
    const size_t first = entry.find(':'),
                 second = first == std::string::npos ? first : entry.find(':', first + 1);
    if (second != std::string::npos) {
      const std::string names = "," + entry.substr(first + 1, second - first - 1) + ",";
      const bool match =
          *controller ? names.find(std::string(",") + controller + ",") != std::string::npos : names == ",,";
      if (match) return entry.substr(second + 1);
    }
    line = end + 1;
  }
  return "/";
}

/// Calls visit(folder) for our group and each group above it up to the mount. Inside a container the path may
/// name groups outside the mount; those folders do not exist and read as "no limit".
template <class Visit>
void each_group(const std::string& mount, std::string path, Visit visit) {
  while (!path.empty() && path.back() == '/') path.pop_back();
  while (!path.empty()) {
    visit(mount + path);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  visit(mount);
}

/// Bytes of a field of /proc/meminfo. Without /proc the kernel is asked: available is then what is free,
/// which is less than what could be had.
uint64_t system_memory(const char* field) {
  const uint64_t kilobytes = read_field(read_file("/proc/meminfo"), field, 0);
  struct sysinfo info{};
  if (kilobytes > 0 || sysinfo(&info) != 0) return kilobytes * 1024;
  const bool total = std::strcmp(field, "MemTotal") == 0;
  return (total ? info.totalram : info.freeram + info.bufferram) * info.mem_unit;
}

uint64_t group_memory_limit() {
  uint64_t limit = kUnlimited;
  each_group("/sys/fs/cgroup", group_path(""), [&](const std::string& folder) {
    limit = std::min(limit, read_number(folder + "/memory.max", kUnlimited));
  });
  each_group("/sys/fs/cgroup/memory", group_path("memory"), [&](const std::string& folder) {
    limit = std::min(limit, read_number(folder + "/memory.limit_in_bytes", kUnlimited));
  });
  return limit;
}

uint64_t group_memory_left() {
  uint64_t left = kUnlimited;
  const auto limit = [&](uint64_t most, uint64_t used, uint64_t reclaimable) {
    if (most == kUnlimited) return;
    used -= std::min(used, reclaimable);
    left = std::min(left, most > used ? most - used : 0);
  };
  each_group("/sys/fs/cgroup", group_path(""), [&](const std::string& folder) {
    limit(std::min(read_number(folder + "/memory.max", kUnlimited),
                   read_number(folder + "/memory.high", kUnlimited)),
          read_number(folder + "/memory.current", 0),
          read_field(read_file(folder + "/memory.stat"), "inactive_file", 0));
  });
  each_group("/sys/fs/cgroup/memory", group_path("memory"), [&](const std::string& folder) {
    limit(read_number(folder + "/memory.limit_in_bytes", kUnlimited),
          read_number(folder + "/memory.usage_in_bytes", 0),
          read_field(read_file(folder + "/memory.stat"), "total_inactive_file", 0));
  });
  return left;
}

int group_cores() {
  double cores = 1e9;
  each_group("/sys/fs/cgroup", group_path(""), [&](const std::string& folder) {
    const std::string text = read_file(folder + "/cpu.max");  // "quota period" or "max period"
    double quota = 0, period = 0;
    if (std::sscanf(text.c_str(), "%lf %lf", &quota, &period) == 2 && quota > 0 && period > 0)
      cores = std::min(cores, quota / period);
  });
  each_group("/sys/fs/cgroup/cpu", group_path("cpu"), [&](const std::string& folder) {
    const double quota = static_cast<double>(read_number(folder + "/cpu.cfs_quota_us", 0));
    const double period = static_cast<double>(read_number(folder + "/cpu.cfs_period_us", 0));
    if (quota > 0 && period > 0) cores = std::min(cores, quota / period);
  });
  return static_cast<int>(std::min(cores + 0.999, 1e6));
}

}  // namespace

int available_cores() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) cores = CPU_COUNT(&mask);
  return std::max(1, std::min(cores, group_cores()));
}

int physical_cores() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return available_cores();
  std::set<std::string> cores;  // cores are told apart by the list of their hardware threads
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &mask)) continue;
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(i);
    const std::string siblings = read_file(folder + "/topology/thread_siblings_list");
    cores.insert(siblings.empty() ? std::to_string(i) : siblings);
  }
  return std::clamp(static_cast<int>(cores.size()), 1, available_cores());
}

size_t total_memory() {
  return static_cast<size_t>(std::min(system_memory("MemTotal"), group_memory_limit()));
}

std::string processor_name() {
  const std::string text = read_file("/proc/cpuinfo");
  const size_t found = text.find("model name");
  if (found == std::string::npos) return {};
  const size_t end = std::min(text.find('\n', found), text.size()), colon = text.find(": ", found);
  return colon < end ? text.substr(colon + 2, end - colon - 2) : std::string();
}

size_t available_memory() {
  return static_cast<size_t>(std::min(system_memory("MemAvailable"), group_memory_left()));
}

}  // namespace vllm::cpu
