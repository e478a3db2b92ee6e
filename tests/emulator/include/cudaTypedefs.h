// Types of the functions of cuda.h.
#pragma once

#include <cuda.h>

typedef CUresult (*PFN_cuTensorMapEncodeTiled_v12000)(
    CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
    const cuuint64_t* size, const cuuint64_t* stride, const cuuint32_t* box,
    const cuuint32_t* element_stride, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill);
