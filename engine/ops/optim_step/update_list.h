// The list of all elementwise optimizer steps: it instantiates the kernels of each for the CPU, for
// float64 and for CUDA devices.
//
// A step is a plain struct with
//  - kName, for errors, and kStates, the number of states of an element besides its value;
//  - its options in float64, and set(UpdateTime), which selects the update;
//  - Numbers<T>, a plain struct of all values that are the same for every element, and
//    numbers<T>(), which computes them in float64 and rounds them once;
//  - update<M>(numbers, gradient, state, value): updates one element, or a vector of them, with the
//    types and functions of M (update_math.h); replaces state[0 .. kStates) and value. It maps
//    zeros to zeros, so that gaps between tensors stay zero.
// A step may branch only on numbers, never on elements.
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
