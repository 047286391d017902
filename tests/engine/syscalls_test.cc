// A steady decode step makes no system calls, but for yielding and waking while threads wait for
// each other. Counted in a child process whose kernel filter turns each call into a signal.
#include <errno.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "plan/wish.h"
#include "support/sanitizer.h"
#include "tenon/engine/model_runner.h"

#if defined(__x86_64__) && !defined(TN_UNDER_SANITIZER)

namespace tenon {
namespace {

constexpr int kNotSupported = 77;
volatile sig_atomic_t g_calls = 0;
volatile sig_atomic_t g_last_call = -1;

void CountCall(int /*signal*/, siginfo_t* info, void* context) {
  g_calls = g_calls + 1;
  g_last_call = info->si_syscall;
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
}

// From now on every call of this process's threads is counted, but those that leave the process or
// a signal handler, and `waiting`.
bool CountCalls(bool waiting) {
  struct sigaction action = {};
  action.sa_sigaction = CountCall;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return false;
  std::vector<sock_filter> code = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  std::vector<unsigned> allowed = {SYS_exit_group, SYS_rt_sigreturn};
  if (waiting) allowed.insert(allowed.end(), {SYS_sched_yield, SYS_futex});
  for (const unsigned call : allowed) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
  sock_fprog program = {static_cast<unsigned short>(code.size()), code.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

// Exit codes: 0 no calls, 1 some, 2 the step failed, kNotSupported.
[[noreturn]] void RunSteps(const char* golden, int threads, bool breaks_the_rule) {
  auto plan = test::PlanGolden(golden, {.threads = threads});
  if (!plan.ok()) _exit(2);
  auto runner = ModelRunner::Load(*std::move(plan));
  if (!runner.ok()) _exit(2);
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5};
  bool ok = (*runner)->Extend(prompt, WantLogits::kLast).ok();
  const int32_t id = 7;
  for (int i = 0; i < 3; ++i) ok &= (*runner)->Extend({&id, 1}, WantLogits::kLast).ok();
  if (!ok) _exit(2);
  if (!CountCalls(threads > 1)) _exit(kNotSupported);
  for (int i = 0; i < 40; ++i) {
    ok &= (*runner)->Extend({&id, 1}, WantLogits::kLast).ok();
    if (breaks_the_rule && i == 20) (void)syscall(SYS_getppid);
  }
  _exit(!ok ? 2 : g_calls > 0 ? 1 : 0);
}

int ExitOf(const char* golden, int threads, bool breaks_the_rule) {
  const pid_t child = fork();
  if (child == 0) RunSteps(golden, threads, breaks_the_rule);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

class SyscallsTest : public testing::TestWithParam<const char*> {};

TEST_P(SyscallsTest, ASteadyDecodeStepMakesNone) {
  if (ExitOf(GetParam(), 1, true) == kNotSupported) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_EQ(ExitOf(GetParam(), 1, true), 1) << "the counting itself";
  for (const int threads : {1, 2}) EXPECT_EQ(ExitOf(GetParam(), threads, false), 0) << threads;
}

INSTANTIATE_TEST_SUITE_P(Goldens, SyscallsTest,
                         testing::Values("llama", "mixtral", "deepseek_v2", "mamba2", "lfm2"));

}  // namespace
}  // namespace tenon

#endif
