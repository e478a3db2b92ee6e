// Copies the state that a step changes, and ends a run that has diverged.
#include "engine/train/step_recovery.h"

#include <cstring>

#include "engine/core/error.h"
#include "engine/train/replicas/replica_sync.h"

namespace engine {

StepRecovery::StepRecovery(LoopContext& context)
    : context_(context),
      finite_(context.parts.control, context.parts.state, context.options.on_nonfinite,
              context.options.clip_grad > 0) {}

const MayUpdate* StepRecovery::begin_step(GradientExchange* exchange) {
  finite_.begin_step();
  exchange_ = exchange;
  keep_state();
  state_ = StepState::kStarted;
  return finite_.may_update();
}

void StepRecovery::end_update() {
  state_ = StepState::kUpdated;
  finite_.end_step();
}

// Copies the state that a step changes before its update: statistics changed by forward, and the
// memory of an exchange. On a device, the work itself keeps the statistics there.
void StepRecovery::keep_state() {
  if (!context_.options.supports_rollback && !context_.can_save_alone() &&
      !context_.is_alone_on_host())
    return;
  TrainState& state = context_.parts.state;
  before_step_.clear();
  if (state.control == nullptr) {
    before_step_.keep(state.model.running);
    before_step_.keep(state.model.counters);
  }
  if (exchange_ != nullptr)
    for (const PolicyState& s : state.policy.exchange_state()) before_step_.keep(*s.buffer);
}

void StepRecovery::roll_back() {
  if (state_ != StepState::kStarted) return;
  context_.parts.work.rollback_step();
  if (exchange_ != nullptr) exchange_->wait_idle();
  before_step_.put_back();
  mark_complete();
}

bool StepRecovery::check_parameters() {
  const std::string not_finite = finite_.bad_parameter();
  handle_non_finite(finite_.note(not_finite));
  return not_finite.empty();
}

void StepRecovery::check_evaluation(const EvalReport& report) {
  if (!report.is_finite()) handle_non_finite(finite_.note_evaluation());
}

void StepRecovery::handle_non_finite(const std::optional<NonFiniteReport>& found) {
  if (!found) return;
  context_.observers.on_nonfinite(context_.progress(), *found);
  if (found->ends_run()) give_up(*found);
}

void StepRecovery::give_up(const NonFiniteReport& found) {
  context_.checkpoints.wait();  // a checkpoint may still be in the process of being written
  context_.report_saved();
  std::string text = to_error(found, context_.checkpoints.last_good(found.last_good));
  backends::Communicator& control = context_.parts.control;
  if (control.world_size() > 1) broadcast_text(control, text);  // only rank 0 knows its files
  throw NonFiniteError(text);
}

}  // namespace engine
