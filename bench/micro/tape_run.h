// A tape with its memory, whose inputs are filled once and stay. Not for shape mode. One thread;
// runs on the team it was given.
#pragma once

#include "kernels/random_data.h"
#include "tenon/base/thread_team.h"
#include "tenon/ops/tape.h"
#include "tenon/tensor/buffer.h"

namespace tenon::bench {

class TapeRun {
 public:
  TapeRun(const KernelTable& kernels, ThreadTeam& team) : tape_(kernels), team_(&team) {}

  Tape& tape() { return tape_; }

  // A shared fp32 value that Seal fills with random numbers in [-1, 1].
  Value Input(const Shape& shape) {
    const Value value = tape_.NewValue(DType::kF32, shape);
    tape_.Keep(value, "input");
    return value;
  }

  // After recording, once.
  void Seal() {
    tape_.Seal(team_->threads());
    arena_ = *Buffer::AllocateZeroed(tape_.arena_bytes(), "benchmark");
    scratch_ = *Buffer::AllocateZeroed(tape_.scratch_bytes(), "benchmark");
    tape_.Bind(arena_.data(), scratch_.data());
    for (const Tape::Kept& kept : tape_.kept()) {
      const std::vector<float> values = test::Floats(kept.value.shape().elements(), 1);
      std::memcpy(tape_.ViewOf(kept.value).data(), values.data(), values.size() * sizeof(float));
    }
  }

  void Run() { tape_.Run(*team_); }

  // The kernel of the first record of an op.
  const char* KernelOf(std::string_view op) const {
    for (const Tape::Record& record : tape_.records()) {
      if (record.op == op) return record.kernel;
    }
    return "";
  }

 private:
  Tape tape_;
  ThreadTeam* team_;
  Buffer arena_, scratch_;
};

}  // namespace tenon::bench
