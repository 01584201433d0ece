#include "base/crash_report.h"

#include <link.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <mutex>

namespace vllm {
namespace {

/// What a signal handler may read: no allocation, no lock.
struct Facts {
  char model[1024] = {};
  uintptr_t begin = 0, end = 0;  // where the code of this library is mapped
};

Facts facts;

const char* cause(int number) {
  switch (number) {
    case SIGBUS:
      return "SIGBUS, as when a file in use was cut short or its disk failed";
    case SIGFPE:
      return "SIGFPE, an arithmetic fault";
    case SIGILL:
      return "SIGILL, an instruction that this processor lacks";
    case SIGABRT:
      return "SIGABRT, an internal check that failed";
    default:
      return "SIGSEGV, an access to memory that is not there";
  }
}

/// A line that is built without the C library.
class Line {
 public:
  void text(const char* s) {
    while (*s != '\0' && size_ < sizeof data_ - 1) data_[size_++] = *s++;
  }
  void hex(uintptr_t value) {
    char digits[2 * sizeof value + 1] = {};
    size_t at = sizeof digits - 1;
    do digits[--at] = "0123456789abcdef"[value % 16];
    while ((value /= 16) != 0);
    text(digits + at);
  }
  void send() {
    data_[size_++] = '\n';
    const ssize_t written = write(STDERR_FILENO, data_, size_);
    (void)written;
  }

 private:
  char data_[1536];
  size_t size_ = 0;
};

uintptr_t program_counter(const void* context) {
  const auto* machine = &static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return static_cast<uintptr_t>(machine->gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<uintptr_t>(machine->pc);
#else
  (void)machine;
  return 0;
#endif
}

void report(int number, siginfo_t*, void* context) {
  Line line;
  line.text("vllm: the process ended by ");
  line.text(cause(number));
  const uintptr_t pc = program_counter(context);
  if (pc >= facts.begin && pc < facts.end) {
    line.text(", at libvllm+0x");
    line.hex(pc - facts.begin);
  }
  line.text(", with the model ");
  line.text(facts.model);
  line.send();
  raise(number);  // the handler is gone: it ends the process
}

int find_library(dl_phdr_info* info, size_t, void* known_address) {
  const auto known = reinterpret_cast<uintptr_t>(known_address);
  uintptr_t end = info->dlpi_addr;
  bool ours = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
    ours = ours || (known >= begin && known < begin + part.p_memsz);
    end = begin + part.p_memsz;
  }
  if (!ours) return 0;
  facts.begin = info->dlpi_addr;
  facts.end = end;
  return 1;
}

}  // namespace

void report_crashes(const std::string& model) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::strncpy(facts.model, model.c_str(), sizeof facts.model - 1);
  if (facts.end != 0) return;
  dl_iterate_phdr(find_library, reinterpret_cast<void*>(&find_library));
  struct sigaction action = {};
  action.sa_sigaction = report;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER;
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(number, &action, nullptr);
}

}  // namespace vllm
