// Every elementwise optimizer step there is: this list makes the kernels of each for the CPU, for
// float64 and for CUDA devices.
//
// What a step is: a plain struct with
//  - kName, for errors, and kStates, how many states an element has beside its value;
//  - its options in float64, and set(UpdateTime): which update this is;
//  - Numbers<T>, plain, with all that is the same for every element, and numbers<T>(), which works
//    it out in float64 and rounds it once;
//  - update<M>(numbers, gradient, state, value): one element, or a vector of them, with the types
//    and functions of M (update_math.h); replaces state[0 .. kStates) and value. From zeros it
//    makes zeros: gaps between tensors stay zero.
// It may branch on numbers only, never on elements.
#pragma once

#include "engine/ops/optim_step/adamw_update.h"
#include "engine/ops/optim_step/average_update.h"
#include "engine/ops/optim_step/lion_update.h"
#include "engine/ops/optim_step/muon_update.h"
#include "engine/ops/optim_step/sgd_update.h"

namespace engine::ops {

template <class... Steps>
struct StepList {};

using UpdateSteps = StepList<SgdUpdate<false>, SgdUpdate<true>, AdamwStep, LionStep,
                             MuonMomentumStep, MuonApplyStep, AverageStep>;

}  // namespace engine::ops
