// Makes the work of a step and the averaging of a session.
#pragma once

#include <memory>

#include "engine/averaging/policies/averaging_policy.h"
#include "engine/train/step/step_work.h"
#include "tools/run/parts/session_communicators.h"
#include "tools/run/parts/session_model.h"
#include "tools/run/parts/session_setting.h"

namespace tools {

// Returns how this rank computes a step, with the model's samples on its device. `control`:
// communicator for agreement on skipped steps.
std::unique_ptr<engine::StepWork> make_work(const SessionSetting& setting, SessionModel& model,
                                            const SessionCommunicators& communicators,
                                            backends::Communicator& control);

std::unique_ptr<engine::AveragingPolicy> make_policy(const SessionSetting& setting,
                                                     SessionModel& model,
                                                     const SessionCommunicators& communicators);

}  // namespace tools
