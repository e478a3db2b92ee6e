// What the kernels of hopper_kernels.cu can be told to leave out or to do wrong.
#pragma once

enum Flaw : int {
  kNone,
  kCountsTooMany,
  kNoInitFence,
  kNoInitBarrier,
  kNoEmptyWait,
  kWrongBytes,
  kMisaligned,
  kNoFullWait,
  kNoRelease,
  kLateRead,
  kNoWaitForRead,
  kNoResultBarrier,
  kNoProxyFence,
  kNoWaitAtEnd,
  kTooManyRegisters,
  kReleasedEarly,
  kNoClusterStart,
  kNoRemoteRelease,
  kNoClusterEnd,
};
