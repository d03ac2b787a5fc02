/* Numbers of the Python functions that the delegate calls, in the order of nnhal_delegate/functions.py. */

#ifndef NNHAL_DELEGATE_FUNCTIONS_H
#define NNHAL_DELEGATE_FUNCTIONS_H

enum {
    FUNCTION_create_delegate,
    FUNCTION_destroy_delegate,
    FUNCTION_create_graph,
    FUNCTION_destroy_graph,
    FUNCTION_add_tensor,
    FUNCTION_set_sparsity,
    FUNCTION_add_sparse_dimension,
    FUNCTION_add_node,
    FUNCTION_chosen_nodes,
    FUNCTION_examine_partition,
    FUNCTION_report_partitions,
    FUNCTION_create_kernel,
    FUNCTION_destroy_kernel,
    FUNCTION_prepare_kernel,
    FUNCTION_invoke_kernel,
    FUNCTION_copy_outputs,
    FUNCTION_COUNT
};

#endif
