// pinion cpu: plans for other machines, and reasons for a low clock.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>

#include "tests/apps/program.h"
#include "tests/engine/recorded.h"

namespace pinion {
namespace {

json plan_of(const std::string& board, const std::vector<std::string>& more = {}) {
  const TempFolder root;
  unpack_recording(board, root.path, more);
  return run_json({"cpu", "--topology", root.string(), "--json"});
}

TEST(Cpu, TopologyOptionPlansForOtherBoard) {
  EXPECT_EQ(plan_of("raspberry_pi_5")["team"], Cpus({0, 1, 2, 3}));
  EXPECT_EQ(plan_of("rk3588")["team"], Cpus({4, 5, 6, 7}));
  EXPECT_EQ(plan_of("cix_p1")["team"], Cpus({0, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(plan_of("snapdragon_1_3_4")["team"], Cpus({7, 4, 5, 6}));
  const json pi = plan_of("raspberry_pi_5");
  EXPECT_EQ(pi["last_level_cache_bytes"], 2 << 20);
  EXPECT_FALSE(pi.contains("kernels")) << "those of the CPU here";
}

TEST(Cpu, TopologyPlanIsPrintedAsText) {
  const TempFolder root;
  unpack_recording("rk3588", root.path, {"sys/devices/system/cpu/cpu4/cpufreq/scaling_governor:powersave"});
  const Outcome outcome = run_pinion({"cpu", "--topology", root.string()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("decode team: CPUs 4-7"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("clock: CPUs 4: governor powersave; run: echo performance | sudo tee"), std::string::npos)
      << outcome.out;
}

TEST(Cpu, FolderWithoutMachineIsRefused) {
  const TempFolder empty;
  const Outcome outcome = run_pinion({"cpu", "--topology", empty.string()});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("sys/devices/system/cpu"), std::string::npos) << outcome.err;
}

// Makes the kernel refuse filters for system calls to this process, as a kernel without seccomp does.
void refuse_filters() {
  sock_filter steps[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
                         BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {std::size(steps), steps};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

bool warns_of_templates() {
  return run_pinion({"cpu"}).out.find("chat templates: this kernel cannot filter system calls") != std::string::npos;
}

TEST(Cpu, MissingSyscallFilterIsReported) {
#if !defined(PINION_ADDRESS_SANITIZER)  // with ASan the program installs no filter
  if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0) {
    EXPECT_FALSE(warns_of_templates());
  }
#endif
  EXPECT_EXIT(
      {
        refuse_filters();
        _exit(warns_of_templates() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

using Lines = std::vector<std::string>;

// The clock limits of a recorded Raspberry Pi 5 with these additional files.
Lines limits_of(const Lines& files) { return plan_of("raspberry_pi_5", files)["clock_limits"]; }

std::string cpufreq(int cpu, const std::string& line) {
  return "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpufreq/" + line;
}

TEST(ClockLimits, NoLimitsGiveNoLines) {
  EXPECT_EQ(limits_of({}), Lines());
  EXPECT_EQ(limits_of({cpufreq(0, "scaling_governor:schedutil"), cpufreq(0, "scaling_max_freq:2400000"),
                       "sys/class/thermal/cooling_device0/type:cpufreq-cpu0",
                       "sys/class/thermal/cooling_device0/cur_state:0"}),
            Lines());
}

TEST(ClockLimits, GovernorIsNamedWithCpusAndCommand) {
  const Lines lines = limits_of({cpufreq(0, "scaling_governor:powersave"), cpufreq(1, "scaling_governor:powersave"),
                                 cpufreq(2, "scaling_governor:userspace"), cpufreq(2, "scaling_setspeed:1500000"),
                                 cpufreq(3, "scaling_governor:userspace"), cpufreq(3, "scaling_setspeed:2400000")});
  const std::string command =
      "; run: echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
  EXPECT_EQ(lines, Lines({"CPUs 0-1: governor powersave" + command, "CPUs 2: governor userspace" + command}));
}

TEST(ClockLimits, PowersaveOfSelfScalingDriverIsFine) {
  const Lines driver = {cpufreq(0, "scaling_governor:powersave"), cpufreq(0, "scaling_driver:intel_pstate"),
                        cpufreq(0, "energy_performance_preference:balance_performance")};
  EXPECT_EQ(limits_of(driver), Lines());
  const Lines saving = limits_of({driver[0], driver[1], cpufreq(0, "energy_performance_preference:power")});
  ASSERT_EQ(saving.size(), 1u);
  EXPECT_TRUE(saving[0].starts_with("CPUs 0: energy preference power; run: echo balance_performance")) << saving[0];
}

TEST(ClockLimits, ConfiguredMaximumClock) {
  EXPECT_EQ(limits_of({cpufreq(1, "scaling_max_freq:1800000")}),
            Lines({"CPUs 1: at most 1800 of 2400 MHz allowed; run: echo 2400000 | sudo tee "
                   "/sys/devices/system/cpu/cpu*/cpufreq/scaling_max_freq"}));
}

TEST(ClockLimits, HeatAndWeakSupply) {
  EXPECT_EQ(
      limits_of({"sys/class/thermal/cooling_device0/type:pwm-fan", "sys/class/thermal/cooling_device0/cur_state:3",
                 "sys/class/thermal/cooling_device1/type:cpufreq-cpu0", "sys/class/thermal/cooling_device1/cur_state:2",
                 "sys/class/thermal/cooling_device1/max_state:4", "sys/class/hwmon/hwmon1/name:rpi_volt",
                 "sys/class/hwmon/hwmon1/in0_lcrit_alarm:1"}),
      Lines({"throttled by heat (cpufreq-cpu0 at step 2 of 4); cool the board",
             "the supply's voltage was too low; use a stronger power supply"}));
}

}  // namespace
}  // namespace pinion
