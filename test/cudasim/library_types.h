/* Stand-in for the element types of the CUDA libraries. */
#ifndef CUDASIM_LIBRARY_TYPES_H
#define CUDASIM_LIBRARY_TYPES_H

typedef enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType;
#ifndef __cplusplus
typedef enum cudaDataType_t cudaDataType_t;
#endif

#endif
